"""AlterClientQuotas and DescribeClientQuotas (KIP-546), and the quota of changes (KIP-599)."""

from typing import Any, TypeAlias

import pytest
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    CreateTopicsRequest,
    DescribeClientQuotasRequest,
)

from adapters.kafka.errors import ErrorCode
from features.quota.model import DEFAULT, Entity, QuotaKey
from gateway.auth.ports import Operation
from gateway.errors import StorageUnavailable
from gateway.model import TopicName
from tests.adapters.kafka.handlers.handler_fixture import ADMIN, Rig

Entry: TypeAlias = AlterClientQuotasRequest.EntryData
Component: TypeAlias = DescribeClientQuotasRequest.ComponentData
PRODUCED = QuotaKey.PRODUCER_BYTE_RATE
EXACT, BY_DEFAULT, ANY = 0, 1, 2
RATE = "producer_byte_rate"


def entry(entity: dict[str, str | None], **limits: float | None) -> Entry:
    return Entry(
        entity=[Entry.EntityData(entity_type=k, entity_name=n) for k, n in entity.items()],
        ops=[
            Entry.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in limits.items()
        ],
    )


async def alter(rig: Rig, *entries: Entry, dry: bool = False, version: int = 1) -> list[int]:
    answer = await rig.ask(
        "alter_client_quotas", version, entries=list(entries), validate_only=dry
    )
    return [one.error_code for one in answer.entries]


async def describe(
    rig: Rig, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    asked = [Component(entity_type=k, match_type=t, match=n) for k, t, n in components]
    return await rig.ask("describe_client_quotas", version, components=asked, strict=strict)


def described(answer: Any) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): {
            value.key: value.value for value in one.values
        }
        for one in answer.entries
    }


@pytest.mark.parametrize("version", range(2))
async def test_quotas_are_set_described_and_removed(rig: Rig, version: int) -> None:
    ann = entry({"user": "ann"}, producer_byte_rate=1024.0, request_percentage=12.5)
    both = entry({"client-id": None, "user": None}, consumer_byte_rate=5.0)
    assert await alter(rig, ann, both, version=version) == [0, 0]

    assert described(await describe(rig, version=version)) == {
        (("user", "ann"),): {RATE: 1024.0, "request_percentage": 12.5},
        (("user", None), ("client-id", None)): {"consumer_byte_rate": 5.0},
    }
    assert await rig.node.metadata.quotas() == {
        Entity("ann"): {PRODUCED: 1024.0, QuotaKey.REQUEST_PERCENTAGE: 12.5},
        Entity(DEFAULT, DEFAULT): {QuotaKey.CONSUMER_BYTE_RATE: 5.0},
    }
    gone = entry({"user": "ann"}, producer_byte_rate=None, request_percentage=None)
    assert await alter(rig, gone, version=version) == [0]
    assert list(described(await describe(rig))) == [(("user", None), ("client-id", None))]


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, {"u", "U", "c", "uc", "uC", "i"}),
        ([], True, set()),
        ([("user", EXACT, "ann")], False, {"u", "uc", "uC"}),
        ([("user", EXACT, "ann")], True, {"u"}),
        ([("user", BY_DEFAULT, None)], False, {"U"}),
        ([("user", ANY, None)], True, {"u", "U"}),
        ([("user", ANY, None), ("client-id", ANY, None)], True, {"uc", "uC"}),
        ([("client-id", EXACT, "app")], False, {"c", "uc"}),
        ([("client-id", BY_DEFAULT, None)], False, {"uC"}),
        ([("ip", ANY, None)], True, {"i"}),
        ([("ip", EXACT, "10.0.0.2")], True, set()),
    ],
)
async def test_a_filter_selects_by_name_default_or_any(
    rig: Rig, components: list[tuple[str, int, str | None]], *, strict: bool, found: set[str]
) -> None:
    entities = {
        "u": Entity("ann"),
        "U": Entity(DEFAULT),
        "c": Entity(None, "app"),
        "uc": Entity("ann", "app"),
        "uC": Entity("ann", DEFAULT),
    }
    for at, entity in enumerate(entities.values()):
        await rig.node.quotas.change(entity, {PRODUCED: 10.0 + at})
    address = Entity(ip="10.0.0.1")
    await rig.node.quotas.change(address, {QuotaKey.CONNECTION_CREATION_RATE: 20.0})
    by_value = {10.0 + at: name for at, name in enumerate(entities)} | {20.0: "i"}

    answer = await describe(rig, *components, strict=strict)

    values = [value.value for one in answer.entries for value in one.values]
    assert {by_value[value] for value in values} == found


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "ann")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(
    rig: Rig, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    answer = await describe(rig, *components)
    assert (answer.error_code, answer.entries) == (code, None)


@pytest.mark.parametrize(
    "bad",
    [
        entry({}, producer_byte_rate=1.0),
        entry({"group": "g"}, producer_byte_rate=1.0),
        entry({"user": "ann", "ip": "::1"}, producer_byte_rate=1.0),
        entry({"user": ""}, producer_byte_rate=1.0),
        entry({"user": "ann"}, producer_byte_rate=0.5),
        entry({"user": "ann"}, retention_ms=1.0),
        entry({"ip": "somewhere"}, connection_creation_rate=1.0),
        Entry(
            entity=[Entry.EntityData(entity_type="user", entity_name="a")] * 2,
            ops=[Entry.OpData(key=RATE, value=1.0, remove=False)],
        ),
        Entry(
            entity=[Entry.EntityData(entity_type="user", entity_name="a")],
            ops=[Entry.OpData(key=RATE, value=1.0, remove=False)] * 2,
        ),
    ],
)
async def test_an_entry_that_makes_no_sense_is_refused_alone(rig: Rig, bad: Entry) -> None:
    good = entry({"user": "bob"}, producer_byte_rate=1.0)
    assert await alter(rig, bad, good) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert [entity for entity, _ in rig.node.quotas.entities()] == [Entity("bob")]


async def test_a_change_may_only_be_validated(rig: Rig) -> None:
    assert await alter(rig, entry({"user": "ann"}, producer_byte_rate=1.0), dry=True) == [0]
    assert not rig.node.quotas.is_active


async def test_quotas_of_the_config_file_are_not_altered(rig: Rig) -> None:
    rig.node.quotas.declare({Entity("ann"): {PRODUCED: 1.0}})
    assert await alter(rig, entry({"user": "ann"}, producer_byte_rate=2.0)) == [
        ErrorCode.POLICY_VIOLATION
    ]
    assert described(await describe(rig)) == {(("user", "ann"),): {RATE: 1.0}}


async def test_quotas_need_rights_on_the_cluster(rig: Rig) -> None:
    await rig.allow("eve", Operation.DESCRIBE, "cluster", "")
    eve = rig.login("eve")
    asked = [entry({"user": "eve"}, producer_byte_rate=1e9)]
    answer = await rig.ask(
        "alter_client_quotas", 1, session=eve, entries=asked, validate_only=False
    )
    assert answer.entries[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    answer = await rig.ask("describe_client_quotas", 1, session=eve, components=[])
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# --- changes of topics


def creation(name: str, partitions: int) -> Any:
    return CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=[]
    )


async def test_what_comes_after_the_quota_is_used_up_is_refused(rig: Rig) -> None:
    await rig.node.quotas.change(Entity(ADMIN), {QuotaKey.CONTROLLER_MUTATION_RATE: 1.0})
    topics = [creation("a", 10), creation("b", 3), creation("c", 1)]
    answer = await rig.ask(
        "create_topics", 6, topics=topics, timeout_ms=1_000, validate_only=False
    )
    codes = {one.name: one.error_code for one in answer.topics}
    throttled = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert codes == {"a": 0, "b": 0, "c": throttled}  # 11 tokens
    assert rig.topics.find(TopicName("default", "c")) is None
    rig.clock.advance(2_000)
    answer = await rig.ask(
        "create_topics", 6, topics=topics[2:], timeout_ms=1_000, validate_only=False
    )
    assert answer.topics[0].error_code == ErrorCode.NONE


async def test_a_failed_change_costs_nothing(rig: Rig) -> None:
    await rig.topic("a")
    await rig.node.quotas.change(Entity(ADMIN), {QuotaKey.CONTROLLER_MUTATION_RATE: 0.1})
    asked: dict[str, Any] = {"topics": [creation("a", 50)], "timeout_ms": 1_000}
    for _ in range(2):
        answer = await rig.ask("create_topics", 6, **asked, validate_only=False)
        assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_lost_store_changes_no_quota(rig: Rig) -> None:
    await rig.node.metadata.close()
    with pytest.raises(StorageUnavailable):
        await rig.node.quotas.change(Entity("ann"), {PRODUCED: 1.0})
    codes = await alter(rig, entry({"user": "ann"}, producer_byte_rate=1.0))
    assert codes != [ErrorCode.NONE]
    assert not rig.node.quotas.is_active
