"""Quotas of a node: stored and declared ones, and the rates of clients."""

from pathlib import Path

import pytest

from features.quota.model import DEFAULT, Entity, QuotaKey
from gateway.clock import ManualClock
from gateway.config.base import InvalidSettings
from gateway.config.quotas import DeclaredQuota
from gateway.errors import Overloaded, PolicyViolation
from gateway.metadata.sql import SqlMetadata
from gateway.quotas import manager
from gateway.quotas.declared import declared_quotas
from gateway.quotas.manager import Quotas
from gateway.quotas.meters import Meter

PRODUCED = QuotaKey.PRODUCER_BYTE_RATE
CONNECTIONS = QuotaKey.CONNECTION_CREATION_RATE


@pytest.fixture
async def metadata(tmp_path: Path) -> SqlMetadata:
    store = SqlMetadata("sqlite", data_dir=tmp_path)
    await store.open()
    return store


@pytest.fixture
async def quotas(metadata: SqlMetadata) -> Quotas:
    return Quotas(metadata, ManualClock())


def produced(quotas: Quotas, user: str, client_id: str) -> Meter:
    meter = quotas.of(user, client_id).produced
    assert meter is not None
    return meter


async def test_without_quotas_nothing_is_active(quotas: Quotas) -> None:
    await quotas.load()
    assert not quotas.is_active
    assert not quotas.limits_addresses
    assert quotas.of("ann", "app") == (None, None, None, None)


async def test_a_user_has_one_rate_for_all_its_clients(quotas: Quotas) -> None:
    await quotas.change(Entity("ann"), {PRODUCED: 100.0})
    assert quotas.is_active
    assert produced(quotas, "ann", "a").charge(1_000) == 0
    assert produced(quotas, "ann", "b").charge(100) == 1_000
    assert quotas.of("bob", "a").produced is None


async def test_a_default_gives_each_client_a_rate_of_its_own(quotas: Quotas) -> None:
    await quotas.change(Entity(None, DEFAULT), {PRODUCED: 100.0})
    assert produced(quotas, "ann", "a").charge(1_100) == 1_000
    assert produced(quotas, "ann", "b").charge(1_000) == 0


async def test_a_changed_limit_counts_at_once_for_what_was_charged(quotas: Quotas) -> None:
    await quotas.change(Entity("ann"), {PRODUCED: 100.0})
    assert produced(quotas, "ann", "a").charge(1_000) == 0
    await quotas.change(Entity("ann"), {PRODUCED: 50.0})
    assert produced(quotas, "ann", "a").check() == 10_000
    await quotas.change(Entity("ann"), {PRODUCED: None})
    assert quotas.of("ann", "a").produced is None
    assert not quotas.is_active


async def test_quotas_of_the_config_file_count_and_stay(
    quotas: Quotas, metadata: SqlMetadata
) -> None:
    await metadata.change_quotas(Entity("ann"), {PRODUCED: 1.0})
    await quotas.load()
    quotas.declare(declared_quotas([DeclaredQuota(user="ann", producer_byte_rate=100)]))
    assert produced(quotas, "ann", "a").burst == 1_000
    with pytest.raises(PolicyViolation):
        await quotas.change(Entity("ann"), {PRODUCED: None})
    quotas.declare({})
    assert produced(quotas, "ann", "a").burst == 10


async def test_a_failed_change_changes_nothing(quotas: Quotas, metadata: SqlMetadata) -> None:
    await metadata.close()
    with pytest.raises(Exception, match="closed"):
        await quotas.change(Entity("ann"), {PRODUCED: 1.0})
    assert not quotas.is_active


async def test_entities_are_bounded(quotas: Quotas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "ENTITIES_MAX", 1)
    await quotas.change(Entity("ann"), {PRODUCED: 1.0})
    with pytest.raises(Overloaded):
        await quotas.change(Entity("bob"), {PRODUCED: 1.0})
    await quotas.change(Entity("ann"), {PRODUCED: 2.0})


async def test_clients_and_rates_are_bounded(
    quotas: Quotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "CLIENTS_MAX", 3)
    monkeypatch.setattr(manager, "RATES_MAX", 2)
    await quotas.change(Entity(None, DEFAULT), {PRODUCED: 1.0})
    for number in range(20):
        assert produced(quotas, "ann", str(number)).charge(10) == 0
    assert len(quotas._clients) <= 3
    assert len(quotas._rates) <= 2


async def test_long_client_ids_are_cut(quotas: Quotas) -> None:
    await quotas.change(Entity(None, DEFAULT), {PRODUCED: 1.0})
    assert quotas.of("ann", "x" * 30_000) is quotas.of("ann", "x" * 255)
    assert [len(client_id) for _, client_id in quotas._clients] == [255]


async def test_an_address_may_make_so_many_connections(quotas: Quotas) -> None:
    await quotas.change(Entity(ip="10.0.0.1"), {CONNECTIONS: 1.0})
    assert quotas.limits_addresses
    assert not quotas.is_active
    admitted = [quotas.admits_connection("10.0.0.1") for _ in range(30)]
    assert admitted == [True] * 10 + [False] * 20
    assert quotas.admits_connection("10.0.0.2")
    assert quotas.counts.count[CONNECTIONS] == 20


def test_an_entity_is_declared_once() -> None:
    one = DeclaredQuota(ip="::1", connection_creation_rate=1)
    with pytest.raises(InvalidSettings, match="declared twice"):
        declared_quotas([one, one.model_copy(update={"ip": "0::1"})])


@pytest.mark.parametrize(
    "keys",
    [
        {"producer_byte_rate": 1},
        {"user": "ann"},
        {"user": "ann", "ip": "::1", "producer_byte_rate": 1},
        {"user": "ann", "connection_creation_rate": 1},
        {"ip": "::1", "producer_byte_rate": 1},
        {"ip": "localhost", "connection_creation_rate": 1},
        {"user": "", "producer_byte_rate": 1},
        {"user": "ann", "producer_byte_rate": 0},
    ],
)
def test_a_declared_quota_makes_sense(keys: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - pydantic's
        DeclaredQuota.model_validate(keys)
