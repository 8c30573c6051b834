"""Joins of partitions and groups: at the coordinator, and at the node that asks it."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from features.transactions import GroupRef, PartitionRef, Transaction
from gateway.errors import (
    ConcurrentTransactions,
    GatewayError,
    InvalidTransactionState,
    NotLeader,
    ProducerFenced,
)
from gateway.records.markers import Marker
from gateway.shards.model import DONE, OnReply, Request, refused
from gateway.testing.placement import SettablePlacement
from gateway.transactions import joins as joins_module
from gateway.transactions.ends import End, decode_end, encode_end
from gateway.transactions.joins import SERVICE, Join, JoinCodec
from tests.gateway.transactions.rig import COORDINATOR, NAME, SHARDS, TransactionRig
from tests.support.waiting import until

REFS = PartitionRef(UUID(int=1), 0), PartitionRef(UUID(int=2), 9)
GROUPS = GroupRef("default", "g"), GroupRef("", "ä")


class HeldLink:
    """Link to the other node, whose answers the test gives."""

    def __init__(self) -> None:
        self.open: list[tuple[Request, OnReply]] = []

    def call(self, node_id: int, request: Request, on_reply: OnReply) -> None:
        del node_id
        self.open.append((request, on_reply))

    def stream(self, *_args: object) -> None:
        raise AssertionError


@pytest.fixture
async def link(rig: TransactionRig, placement: SettablePlacement) -> HeldLink:
    """Give the coordinator to the other node."""
    placement.give([COORDINATOR])
    await rig.house.broker.shards.settled()
    found = HeldLink()
    rig.house.broker.shard_calls.link = found  # type: ignore[assignment]
    return found


def begin(rig: TransactionRig, producer_id: int = 7) -> "asyncio.Task[None]":
    join = Join(NAME, producer_id, 0, 2, REFS, adds=True)
    return asyncio.create_task(rig.coordinator.joins.join(join))


async def test_join_ends_with_the_answer(rig: TransactionRig, link: HeldLink) -> None:
    joining = begin(rig)
    await until(lambda: bool(link.open))
    [(request, on_reply)] = link.open
    on_reply(DONE)
    await joining

    assert (request.shard, request.service) == (COORDINATOR, SERVICE)
    assert not rig.coordinator.joins._guards


async def test_join_that_is_refused_says_why(rig: TransactionRig, link: HeldLink) -> None:
    joining = begin(rig)
    await until(lambda: bool(link.open))
    link.open[0][1](refused(ProducerFenced("gone")))

    with pytest.raises(ProducerFenced):
        await joining


async def test_join_comes_too_late_after_the_end(rig: TransactionRig, link: HeldLink) -> None:
    late, other = begin(rig), begin(rig, producer_id=8)
    await until(lambda: len(link.open) == 2)
    rig.coordinator.joins.end(7)
    for _, on_reply in link.open:
        on_reply(DONE)

    with pytest.raises(NotLeader):
        await late
    await other


async def test_join_comes_too_late_after_a_move(
    rig: TransactionRig, link: HeldLink, placement: SettablePlacement
) -> None:
    """The end may have come to the node that has had the shard meanwhile."""
    joining = begin(rig)
    await until(lambda: bool(link.open))
    moved = next(one for one in range(SHARDS) if one != COORDINATOR)
    placement.give([moved])
    placement.take([moved])
    link.open[0][1](DONE)

    with pytest.raises(NotLeader):
        await joining


async def ask(rig: TransactionRig, value: Transaction, **fields: Any) -> GatewayError | None:
    """Ask the coordinator as another node does; return its refusal."""
    join = Join(NAME, value.producer_id, value.epoch, 2)._replace(**fields)
    try:
        await rig.house.broker.shard_calls.ask(COORDINATOR, SERVICE, join)
    except GatewayError as error:
        return error
    return None


async def test_what_joins_is_durable_when_it_is_answered(rig: TransactionRig) -> None:
    value = await rig.init()

    assert await ask(rig, value, partitions=REFS, groups=GROUPS, adds=True) is None
    assert rig.coordinator._values.is_settled(NAME)
    await rig.restart()
    found = rig.coordinator.find(NAME)
    assert (found.partitions, found.groups) == (REFS, GROUPS)


async def test_what_was_not_added_does_not_join(rig: TransactionRig) -> None:
    value = await rig.init()
    producer = value.producer_id, value.epoch
    rig.coordinator.add(NAME, *producer, partitions=REFS[:1], groups=GROUPS[:1])

    assert await ask(rig, value, partitions=REFS[:1], groups=GROUPS[:1]) is None
    for fields in ({"partitions": REFS}, {"groups": GROUPS}):
        assert isinstance(await ask(rig, value, **fields), InvalidTransactionState)
    assert isinstance(await ask(rig, value, epoch=9, adds=True), ProducerFenced)


@pytest.mark.parametrize("busy_count", [joins_module.TRIES_MAX - 1, joins_module.TRIES_MAX])
async def test_join_waits_a_while_for_the_end_of_the_transaction_before(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch, busy_count: int
) -> None:
    monkeypatch.setattr(joins_module, "RETRY_S", 0)
    value = await rig.init()
    add, tries = rig.coordinator.add, 0

    def busy(*args: Any, **options: Any) -> None:
        nonlocal tries
        tries += 1
        if tries <= busy_count:
            raise ConcurrentTransactions("the end is on its way")
        add(*args, **options)

    monkeypatch.setattr(rig.coordinator, "add", busy)
    error = await ask(rig, value, partitions=REFS, adds=True)

    assert tries == joins_module.TRIES_MAX
    is_refused = busy_count == joins_module.TRIES_MAX
    assert isinstance(error, ConcurrentTransactions) == is_refused


@pytest.mark.parametrize("adds", [True, False])
def test_join_is_the_same_after_its_way(adds: bool) -> None:  # noqa: FBT001 - a parameter
    join = Join(NAME, 1 << 40, 32_766, 2, REFS, GROUPS, adds=adds)
    codec = JoinCodec()

    assert codec.decode_request(codec.encode_request(join)) == join
    with pytest.raises(ValueError, match="join"):
        codec.decode_request(codec.encode_request(join)[:-1])


@pytest.mark.parametrize("version", [1, 2])
def test_end_is_the_same_after_its_way(version: int) -> None:
    marker = Marker(1 << 40, 32_767, version == 1, 1_000)
    end = End(marker, version, REFS, GROUPS)

    assert decode_end(encode_end(end)) == end
    with pytest.raises(GatewayError):
        decode_end(encode_end(end)[:-1])
