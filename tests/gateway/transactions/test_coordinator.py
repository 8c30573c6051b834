"""Coordinator on a kernel in memory: ends, restarts, timeouts, bounds."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from features.transactions import EPOCH_MAX, InitRequest, PartitionRef, State, Transaction
from gateway.config.transactions import TransactionsConfig
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    Overloaded,
    ProducerFenced,
    StorageFull,
    TransactionNotFound,
    UnknownProducerMapping,
)
from gateway.groups.cursors import Commit
from gateway.partition import Partition
from gateway.records.markers import Marker
from gateway.transactions import timeouts
from gateway.transactions import values as values_module
from gateway.transactions.coordinator import ID_CHARS_MAX
from gateway.transactions.journal import CHUNK_PARTITIONS, TransactionalId
from tests.gateway.kernel_in_memory import outcome, running
from tests.gateway.transactions.rig import GROUP, NAME, TIMEOUT_MS, TransactionRig
from tests.support.waiting import until

VALUE = b"value"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[TransactionRig]:
    async with running(tmp_path, shard_count=4) as house:
        one = TransactionRig(house, TransactionsConfig(partitions_max=1_000, ids_max=3))
        await one.open()
        yield one
        one.close()


def again(rig: TransactionRig, name: str, number: int = 0) -> Partition:
    """Return a partition after a restart."""
    [found] = [one for one in rig.house.topics.everything() if one.name.name == name]
    return rig.house.broker.partition(found, number)


async def test_commit_is_one_append(rig: TransactionRig) -> None:
    topic = await rig.house.topic("t", 3)
    partitions = [rig.house.broker.partition(topic, number) for number in range(3)]
    value = await rig.init()
    for partition in partitions:
        await rig.write(value, partition)
    await rig.commit_offset(value, partitions[0], 7)
    writer = rig.house.broker.writer
    before = len(writer.pending), writer.batches_appended

    ending = rig.end(value)
    task_result = await ending

    assert before[0] == 0
    # The marker of three partitions, the offset, and the state of the id.
    assert writer.batches_appended - before[1] == 3
    assert task_result.state is State.COMPLETE_COMMIT
    assert [rig.seen(partition) for partition in partitions] == [[VALUE]] * 3
    assert (rig.offset(partitions[0]), rig.is_unstable(partitions[0])) == (7, False)


@pytest.mark.parametrize("is_commit", [True, False])
async def test_marker_of_many_partitions_is_known_after_a_restart(
    rig: TransactionRig,
    is_commit: bool,  # noqa: FBT001 - a parameter
) -> None:
    topic = await rig.house.topic("t", 3)
    value = await rig.init()
    for number in range(3):
        await rig.write(value, rig.house.broker.partition(topic, number))
    await rig.end(value, is_commit=is_commit)

    def seen() -> list[tuple[list[bytes | None], int]]:
        partitions = [again(rig, "t", number) for number in range(3)]
        return [(rig.seen(one), one.stable_end) for one in partitions]

    before = seen()
    await rig.restart()

    assert before == seen() == [([VALUE] if is_commit else [], 2)] * 3


async def test_abort_hides_records_and_offsets(rig: TransactionRig) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.write(value, partition)
    await rig.commit_offset(value, partition, 7)
    assert rig.is_unstable(partition)

    await rig.end(value, is_commit=False)

    assert rig.seen(partition) == []
    assert (rig.offset(partition), rig.is_unstable(partition)) == (None, False)


async def test_open_transaction_goes_on_after_a_restart(rig: TransactionRig) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.write(value, partition)
    await rig.commit_offset(value, partition, 7)

    await rig.restart()
    partition = again(rig, "t")
    found = rig.coordinator.find(NAME)
    seen = rig.seen(partition), rig.offset(partition), rig.is_unstable(partition)
    rig.sequences = {partition: 1}
    await rig.write(value, partition)
    await rig.end(value)

    assert found.state is State.ONGOING
    assert seen == ([], None, True)
    assert rig.seen(partition) == [VALUE, VALUE]
    assert rig.offset(partition) == 7


async def test_end_is_known_after_a_restart(rig: TransactionRig) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.write(value, partition)
    ended = await rig.end(value)

    await rig.restart()

    assert rig.coordinator.find(NAME) == ended
    assert (await rig.end(value)) == ended  # the same request again
    assert rig.seen(again(rig, "t")) == [VALUE]


async def test_many_partitions_are_stored_in_chunks(rig: TransactionRig) -> None:
    topic = await rig.house.topic("t", CHUNK_PARTITIONS + 5)
    refs = [PartitionRef(topic.uuid, number) for number in range(CHUNK_PARTITIONS + 5)]
    value = await rig.init()
    producer = value.producer_id, value.epoch
    for start in (0, CHUNK_PARTITIONS - 1, CHUNK_PARTITIONS + 2):
        rig.coordinator.add(NAME, *producer, partitions=refs[: start + 3], version=2)

    await rig.restart()
    found = rig.coordinator.find(NAME).partitions
    await rig.end(value)
    await rig.restart()

    assert set(found) == set(refs)
    assert rig.coordinator.find(NAME).partitions == ()
    assert len(rig.coordinator._values.stream.values) == 1


async def test_transaction_is_aborted_at_its_timeout_and_not_before(
    rig: TransactionRig,
) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.write(value, partition)
    deadlines = rig.coordinator._timeouts._deadlines

    rig.house.clock.advance(TIMEOUT_MS - 1)
    deadlines.run_due()
    before = rig.coordinator.find(NAME).state
    rig.house.clock.advance(1)
    deadlines.run_due()
    await outcome(rig.house.broker.after_pending)

    assert before is State.ONGOING
    assert rig.coordinator.find(NAME).state is State.COMPLETE_ABORT
    assert partition.stable_end == partition.high_watermark == 2
    assert rig.coordinator.ended["timeout"] == 1
    with pytest.raises(ProducerFenced):
        await rig.end(value)


async def test_timeout_runs_on_over_a_restart(rig: TransactionRig) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.write(value, partition)
    rig.house.clock.advance(TIMEOUT_MS - 1)

    await rig.restart()
    rig.house.clock.advance(1)
    rig.coordinator._timeouts._deadlines.run_due()

    assert rig.coordinator.find(NAME).state is State.COMPLETE_ABORT


async def test_new_producer_aborts_what_is_open(rig: TransactionRig) -> None:
    partition = await rig.house.partition("t")
    old = await rig.init()
    await rig.write(old, partition)
    await rig.commit_offset(old, partition, 7)

    heir = await rig.init()

    assert heir.epoch == old.epoch + 2
    assert rig.seen(partition) == []
    assert not rig.is_unstable(partition)
    with pytest.raises(ProducerFenced):
        await rig.write(old, partition)
    await rig.write(heir, partition)
    await rig.end(heir)
    assert rig.seen(partition) == [VALUE]


async def test_last_epoch_is_followed_by_a_new_producer_id(rig: TransactionRig) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    last = replace(value, epoch=EPOCH_MAX - 1)
    await outcome(lambda on_done: rig.coordinator._values.keep(NAME, last, None, on_done))
    await rig.write(last, partition)

    ended = await rig.end(last)

    assert (ended.producer_id != last.producer_id, ended.epoch) == (True, 0)
    await rig.write(ended, partition)
    await rig.end(ended)
    assert rig.seen(partition) == [VALUE, VALUE]


async def test_later_of_two_positions_counts(rig: TransactionRig) -> None:
    topic = await rig.house.topic("t", 2)
    first, second = [rig.house.broker.partition(topic, number) for number in range(2)]
    value = await rig.init()
    plain = [Commit(topic.uuid, 0, 20), Commit(topic.uuid, 1, 20)]
    await rig.commit_offset(value, first, 7)
    await outcome(lambda on_done: rig.cursors.commit(GROUP, plain, on_done))
    await rig.commit_offset(value, second, 8)

    await rig.restart()
    unstable = rig.is_unstable(again(rig, "t")), rig.is_unstable(again(rig, "t", 1))
    await rig.end(value)

    assert unstable == (True, True)
    assert [rig.offset(again(rig, "t", number)) for number in range(2)] == [20, 8]


async def test_deleted_topic_ends_by_that(rig: TransactionRig) -> None:
    gone = await rig.house.topic("gone")
    kept = await rig.house.partition("kept")
    value = await rig.init()
    await rig.write(value, rig.house.broker.partition(gone, 0))
    await rig.write(value, kept)

    await rig.house.topics.delete(gone.name)
    await rig.end(value)

    assert rig.seen(kept) == [VALUE]


async def test_operator_aborts_an_open_transaction(rig: TransactionRig) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    with pytest.raises(TransactionNotFound):
        await rig.coordinator.abort(NAME)
    await rig.write(value, partition)

    await rig.coordinator.abort(NAME)

    assert partition.stable_end == 2
    with pytest.raises(TransactionNotFound):
        await rig.coordinator.abort(TransactionalId("default", "unknown"))


async def test_bounds(rig: TransactionRig) -> None:
    topic = await rig.house.topic("t")
    value = await rig.init()
    refs = [PartitionRef(topic.uuid, number) for number in range(1_001)]
    producer = value.producer_id, value.epoch

    with pytest.raises(Overloaded):
        rig.coordinator.add(NAME, *producer, partitions=refs)
    for number in range(2):
        await rig.init(TransactionalId("default", f"tx-{number}"))
    with pytest.raises(Overloaded):
        await rig.init(TransactionalId("default", "one too many"))
    assert (await rig.init()).epoch == 1  # a known one goes on
    with pytest.raises(InvalidRequest):
        await rig.init(TransactionalId("default", "x" * (ID_CHARS_MAX + 1)))


async def test_idle_ids_expire_and_open_ones_do_not(rig: TransactionRig) -> None:
    partition = await rig.house.partition("t")
    idle = TransactionalId("default", "idle")
    await rig.init(idle)
    rig.house.clock.advance(rig.config.id_expiration_ms + 1)
    value = await rig.init()
    await rig.write(value, partition)

    rig.coordinator._timeouts._expire()
    await rig.restart()

    assert set(rig.coordinator.values) == {NAME}
    with pytest.raises(UnknownProducerMapping):
        await rig.end(value, name=idle)


async def test_ids_are_looked_at_in_turns_of_the_loop(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "CHECKED_PER_TURN_MAX", 1)
    for number in range(3):
        await rig.init(TransactionalId("default", f"idle-{number}"))
    rig.house.clock.advance(rig.config.id_expiration_ms + 1)
    rig.coordinator._timeouts.close()  # of the timer that runs each minute

    rig.coordinator._timeouts._expire()
    assert len(rig.coordinator.values) == 2

    await until(lambda: not rig.coordinator.values)


async def test_transactions_that_time_out_at_once_are_aborted_in_turns(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "ABORTED_PER_TURN_MAX", 1)
    partition = await rig.house.partition("t")
    for number in range(3):
        name = TransactionalId("default", f"tx-{number}")
        await rig.write(await rig.init(name), partition, name=name)
    rig.house.clock.advance(TIMEOUT_MS)
    rig.coordinator._timeouts._due_left = 1

    rig.coordinator._timeouts._deadlines.run_due()

    for aborted in (1, 2, 3):
        assert rig.coordinator.ended["timeout"] == aborted
        rig.coordinator._timeouts._next_turn()
    assert not rig.coordinator.ongoing
    await outcome(rig.house.broker.after_pending)
    assert partition.stable_end == 6


async def test_end_of_an_unknown_id_takes_no_producer_id(rig: TransactionRig) -> None:
    value = await rig.init()
    before = await rig.coordinator._producer_ids.next()
    with pytest.raises(UnknownProducerMapping):
        await rig.end(value, name=TransactionalId("default", "unknown"))

    assert await rig.coordinator._producer_ids.next() == before + 1


async def test_refused_append_changes_nothing(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.write(value, partition)
    await rig.commit_offset(value, partition, 7)
    before = rig.coordinator.find(NAME)

    def full(*_args: object, **_options: object) -> None:
        raise StorageFull("no space")

    with monkeypatch.context() as patched:
        patched.setattr(rig.house.storage, "enqueue", full)
        for request in (rig.end(value), rig.init(), rig.coordinator.abort(NAME)):
            with pytest.raises(GatewayError):
                await request

    assert rig.coordinator.find(NAME) == before
    assert rig.is_unstable(partition)
    await rig.end(value)
    assert rig.seen(partition) == [VALUE]
    assert rig.offset(partition) == 7


async def test_timeout_on_a_full_disk_is_tried_again(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.write(value, partition)
    deadlines = rig.coordinator._timeouts._deadlines

    def full(*_args: object, **_options: object) -> None:
        raise StorageFull("no space")

    with monkeypatch.context() as patched:
        patched.setattr(rig.house.storage, "enqueue", full)
        rig.house.clock.advance(TIMEOUT_MS)
        deadlines.run_due()
    refused = rig.coordinator.find(NAME).state
    rig.house.clock.advance(1_000)
    deadlines.run_due()

    assert refused is State.ONGOING
    assert rig.coordinator.find(NAME).state is State.COMPLETE_ABORT


async def test_given_epoch_of_an_open_transaction_is_that_of_its_producer(
    rig: TransactionRig,
) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.write(value, partition)
    request = InitRequest(TIMEOUT_MS, value.producer_id, value.epoch)

    first = await rig.coordinator.init(NAME, request)
    again_ = await rig.coordinator.init(NAME, request)

    assert (first.epoch, again_.epoch) == (value.epoch + 2, value.epoch + 2)


async def test_transaction_ends_after_the_marker_of_an_operator(rig: TransactionRig) -> None:
    partition = await rig.house.partition("t")
    broker = rig.house.broker
    value = await rig.init()
    await rig.write(value, partition, version=1)
    hanging = Marker(value.producer_id, value.epoch, False, 1_000)  # noqa: FBT003 - a tuple
    marker = broker.prepare_marker(partition, hanging, transaction_version=1)
    assert marker is not None
    await outcome(lambda on_done: broker.append([marker], on_done))
    await rig.write(value, partition, version=1)
    assert partition.stable_end == 2

    await rig.end(value, version=1)

    assert rig.seen(partition) == [VALUE]
    assert partition.stable_end == 4


async def test_transaction_of_version_two_ends_by_version_one(rig: TransactionRig) -> None:
    partition = await rig.house.partition("t")
    value = await rig.init()
    await rig.write(value, partition, version=2)

    await rig.end(value, version=1)

    assert rig.seen(partition) == [VALUE]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_offsets_in_a_deleted_topic_are_not_committed(
    rig: TransactionRig,
    is_restarted: bool,  # noqa: FBT001 - a parameter
) -> None:
    topic = await rig.house.topic("gone")
    value = await rig.init()
    await rig.commit_offset(value, rig.house.broker.partition(topic, 0), 7)
    if is_restarted:  # killed before the offsets went
        rig.house.topics.on_deleted.clear()
    await rig.house.topics.delete(topic.name)
    if is_restarted:
        await rig.restart()

    await rig.end(value)

    assert not rig.cursors.count
    assert not rig.cursors.pending


async def test_thousands_of_ids_are_loaded_and_expired_in_turns(tmp_path: Path) -> None:
    """As a sink of Flink makes them: an id for each subtask and checkpoint, never used again."""
    count = 2_000
    async with running(tmp_path, shard_count=4) as house:
        one = TransactionRig(house)
        await one.open()
        for number in range(count):
            value = Transaction(number, 0, TIMEOUT_MS, updated_unix_ms=house.clock.unix_ms())
            name = TransactionalId("default", f"sink-{number % 64}-{number}")
            one.coordinator._values.keep(name, value, None, lambda _error: None)
        await one.restart()
        loaded = len(one.coordinator.values)
        timeouts_ = one.coordinator._timeouts
        timeouts_.close()  # of the timer that runs each minute
        house.clock.advance(one.config.id_expiration_ms + 1)
        turns_taken = 0
        while one.coordinator.values:
            before = len(one.coordinator.values)
            timeouts_._expire()
            turns_taken += 1
            assert before - len(one.coordinator.values) <= timeouts.CHECKED_PER_TURN_MAX
            timeouts_.close()
        one.close()

    assert loaded == count
    assert turns_taken == count // timeouts.CHECKED_PER_TURN_MAX


async def test_ids_of_a_shard_are_decoded_in_turns(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values_module, "LOADED_PER_TURN_MAX", 1)
    for number in range(3):
        await rig.init(TransactionalId("default", f"tx-{number}"))
    values = rig.coordinator._values
    shards = set(values.open_shards)
    values.close_shards(shards)
    assert not rig.coordinator.values
    seen = []
    sleep = asyncio.sleep

    async def turn(delay_s: float) -> None:
        seen.append(len(rig.coordinator.values))
        await sleep(delay_s)

    monkeypatch.setattr(asyncio, "sleep", turn)
    await values.load_shards(shards)

    assert seen[-3:] == [0, 1, 2]
    assert len(rig.coordinator.values) == 3
