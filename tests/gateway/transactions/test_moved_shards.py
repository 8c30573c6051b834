"""Transactions whose partitions, groups or coordinator have moved to another node meanwhile.

The other node has no process here: what is sent to it waits until its shards come back.
"""

import pytest

from features.transactions import InitRequest, PartitionRef, State, Transaction
from gateway.errors import ConcurrentTransactions, StorageFull
from gateway.groups.model import GroupName
from gateway.partition import Partition
from gateway.placement import shard_of
from gateway.slots import shard_of_group
from gateway.testing.placement import SettablePlacement
from gateway.transactions import values as values_module
from gateway.transfer import transfers as transfers_module
from tests.gateway.transactions.rig import (
    COORDINATOR,
    NAME,
    SHARDS,
    TIMEOUT_MS,
    TransactionRig,
)
from tests.support.waiting import turns, until

AWAY = next(
    name
    for name in (GroupName("default", f"group-{number}") for number in range(100))
    if shard_of_group(*name, SHARDS) not in {0, COORDINATOR}
)
"""Group of another shard than the transactional id."""
VALUE = b"value"
PARTITIONS = 256
"""So many that each shard has some, whatever the topic's uuid."""


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers_module, "RETRY_S", 0.001)
    monkeypatch.setattr(values_module, "RETRY_S", 0.001)


class Moves:
    """A topic, of which one partition is with the coordinator and one is not."""

    def __init__(self, rig: TransactionRig, placement: SettablePlacement) -> None:
        self.rig = rig
        self.placement = placement
        self.here = self.there = 0

    async def open(self) -> None:
        topic = await self.rig.house.topic("t", PARTITIONS)
        shards = [shard_of(topic, number, self.placement) for number in range(PARTITIONS)]
        self.here = shards.index(COORDINATOR)
        self.there = next(n for n, one in enumerate(shards) if one != COORDINATOR)
        self.away = {shards[self.there]}

    def partition(self, number: int) -> Partition:
        [topic] = [one for one in self.rig.house.topics.everything() if one.name.name == "t"]
        return self.rig.house.broker.partition(topic, number)

    async def write_both(self, value: Transaction) -> None:
        for number in (self.here, self.there):
            await self.rig.write(value, self.partition(number))

    async def give(self) -> None:
        self.placement.give(self.away)
        await self.rig.house.broker.shards.settled()

    async def take(self) -> None:
        """Take the shards back, and wait until no end is on its way."""
        self.placement.take(self.away)
        await self.rig.house.broker.shards.settled()
        await until(lambda: not self.state.is_prepared)

    @property
    def state(self) -> State:
        return self.rig.coordinator.find(NAME).state

    def seen(self) -> list[list[bytes | None]]:
        return [self.rig.seen(self.partition(n)) for n in (self.here, self.there)]


@pytest.fixture
async def moves(rig: TransactionRig, placement: SettablePlacement) -> Moves:
    one = Moves(rig, placement)
    await one.open()
    return one


@pytest.mark.parametrize("is_commit", [True, False])
async def test_end_is_decided_before_the_other_node_has_it(
    rig: TransactionRig,
    moves: Moves,
    is_commit: bool,  # noqa: FBT001 - a parameter
) -> None:
    value = await rig.init()
    await moves.write_both(value)
    await moves.give()

    ended = await rig.end(value, is_commit=is_commit)
    await turns(20)
    prepared = rig.coordinator.find(NAME)
    here = rig.seen(moves.partition(moves.here))
    await moves.take()

    kept = [VALUE] if is_commit else []
    state = State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT
    assert (prepared.state, len(prepared.partitions)) == (state, 2)
    assert (ended.producer_id, ended.epoch) == (prepared.producer_id, prepared.epoch)
    assert here == kept
    assert moves.seen() == [kept, kept]
    assert moves.partition(moves.there).stable_end == 2
    assert moves.state is (State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT)
    await moves.write_both(ended)
    await rig.end(ended)
    assert moves.seen() == [[*kept, VALUE]] * 2


async def test_next_transaction_waits_for_the_end(rig: TransactionRig, moves: Moves) -> None:
    value = await rig.init()
    await moves.write_both(value)
    await moves.give()
    ended = await rig.end(value)
    ref = PartitionRef(moves.partition(moves.here).topic.uuid, moves.here)

    with pytest.raises(ConcurrentTransactions):
        rig.coordinator.add(NAME, ended.producer_id, ended.epoch, partitions=[ref], version=2)
    with pytest.raises(ConcurrentTransactions):
        await rig.init()
    with pytest.raises(ConcurrentTransactions):  # the same request again
        await rig.end(value)
    await moves.take()

    assert (await rig.end(value)).epoch == ended.epoch
    assert (await rig.init()).epoch == ended.epoch + 1


@pytest.mark.parametrize("is_commit", [True, False])
async def test_offsets_of_a_group_that_moved_follow(
    rig: TransactionRig,
    moves: Moves,
    is_commit: bool,  # noqa: FBT001 - a parameter
) -> None:
    value = await rig.init()
    partition = moves.partition(moves.here)
    await rig.commit_offset(value, partition, 7, AWAY)
    moves.away = {shard_of_group(*AWAY, SHARDS)} - {COORDINATOR}
    await moves.give()
    await rig.end(value, is_commit=is_commit)
    before = moves.state

    await moves.take()

    partition = moves.partition(moves.here)
    assert before is (State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT)
    assert rig.offset(partition, AWAY) == (7 if is_commit else None)
    assert not rig.is_unstable(partition, AWAY)


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_end_is_sent_again_by_the_next_coordinator(
    rig: TransactionRig,
    moves: Moves,
    placement: SettablePlacement,
    is_restarted: bool,  # noqa: FBT001 - a parameter
) -> None:
    value = await rig.init()
    await moves.write_both(value)
    await moves.give()
    await rig.end(value)
    if is_restarted:
        rig.close()
        placement.before_release.clear()
        placement.on_change.clear()
        await rig.house.restart()
        await rig.open()
    else:
        placement.give([COORDINATOR])
        await rig.house.broker.shards.settled()
        placement.take([COORDINATOR])
        await rig.house.broker.shards.settled()
    before = moves.state

    await moves.take()

    assert (before, moves.state) == (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
    assert moves.seen() == [[VALUE], [VALUE]]
    assert moves.partition(moves.there).high_watermark == 2


async def test_timeout_is_an_end_in_other_nodes_too(rig: TransactionRig, moves: Moves) -> None:
    value = await rig.init()
    await moves.write_both(value)
    await moves.give()

    rig.house.clock.advance(TIMEOUT_MS)
    rig.coordinator._timeouts._deadlines.run_due()
    before = moves.state
    await moves.take()

    assert before is State.PREPARE_ABORT
    assert moves.seen() == [[], []]
    assert moves.partition(moves.there).stable_end == 2


@pytest.mark.parametrize("is_known", [True, False])
async def test_new_producer_asks_again_while_the_old_one_is_aborted(
    rig: TransactionRig,
    moves: Moves,
    is_known: bool,  # noqa: FBT001 - a parameter
) -> None:
    value = await rig.init()
    await moves.write_both(value)
    await moves.give()
    request = InitRequest(TIMEOUT_MS)
    if is_known:  # KIP-360
        request = InitRequest(TIMEOUT_MS, value.producer_id, value.epoch)

    with pytest.raises(ConcurrentTransactions):
        await rig.coordinator.init(NAME, request)
    assert moves.state is State.PREPARE_ABORT
    await moves.take()
    rig.sequences.clear()
    heir = await rig.coordinator.init(NAME, request)

    assert heir.epoch > value.epoch
    assert moves.seen() == [[], []]
    await moves.write_both(heir)
    await rig.end(heir)
    assert moves.seen() == [[VALUE], [VALUE]]


async def test_topic_that_is_deleted_meanwhile_has_ended(
    rig: TransactionRig, moves: Moves
) -> None:
    value = await rig.init()
    await moves.write_both(value)
    topic = moves.partition(moves.here).topic
    await moves.give()
    await rig.end(value)

    await rig.house.topics.delete(topic.name)
    await moves.take()

    assert moves.state is State.COMPLETE_COMMIT


async def test_completion_that_is_refused_is_tried_again(
    rig: TransactionRig, moves: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = await rig.init()
    await moves.write_both(value)
    await moves.give()
    await rig.end(value)
    keep = rig.coordinator._values.keep
    refused: list[object] = []

    def refuse(*args: object, **options: object) -> None:
        if not refused:
            refused.append(args)
            raise StorageFull("no space")
        keep(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(rig.coordinator._values, "keep", refuse)
    await moves.take()

    assert len(refused) == 1
    assert moves.state is State.COMPLETE_COMMIT


async def test_only_what_the_transaction_has_is_ended(
    rig: TransactionRig, moves: Moves
) -> None:
    """Another producer's transaction in the same partition stays open."""
    other = await rig.init(other_name := NAME._replace(name="other"))
    await rig.write(other, moves.partition(moves.there), name=other_name)
    value = await rig.init()
    await rig.write(value, moves.partition(moves.there))
    await moves.give()
    await rig.end(value)
    await moves.take()

    assert moves.partition(moves.there).stable_end == 0
    await rig.end(other, name=other_name)
    assert rig.seen(moves.partition(moves.there)) == [VALUE, VALUE]
