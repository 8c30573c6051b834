"""A run for many partitions is stored once, and each partition keeps the order of its runs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.coalescer import BATCH_RECORDS_MAX, Coalescer, TargetGroup
from gateway.errors import InvalidRecord, MessageTooLarge, StorageUnavailable, TopicNotFound
from gateway.model import Buffer
from gateway.partition import Partition
from gateway.records.codec import NO_HEADERS, decode_batch
from gateway.records.record_run import RecordRun
from gateway.writer import Write
from tests.gateway.kernel_in_memory import House, outcome, running
from tests.support.examples import examples
from tests.support.waiting import until

NAMES = ["a", "b", "c", "d"]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path, bytes_max=16 << 20) as one:
        yield one


def run_of(*values: bytes | None) -> RecordRun:
    return RecordRun(b"key", values, NO_HEADERS, 1_700_000_000_000)


def stored(house: House) -> list[tuple[tuple[int, ...], int]]:
    """Return the partitions and the number of records of each stored batch, in order."""
    return [
        (
            tuple(target.partition_id for target in header.targets),
            int.from_bytes(header.header[57:61], "big"),
        )
        for header in house.storage.scan(0)
    ]


def note(answers: list[int], number: int, error: StorageUnavailable | None) -> None:
    assert error is None
    answers.append(number)


class Reader:
    """Receiver of a tail; it keeps what it is given."""

    def __init__(self) -> None:
        self.found: list[tuple[int, bytes | None]] = []
        self.writes = 0

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:
        self.writes += len(writes)
        return self.on_batches(partition, [write.batch for write in writes])

    def on_batches(self, partition: Partition, batches: Sequence[Buffer]) -> bool:
        del partition
        for batch in batches:
            self.found += [(one.offset, one.value) for one in decode_batch(batch)]
        return True

    def on_tail_error(self, partition: Partition, error: Exception) -> None:
        raise AssertionError(f"{partition}: {error}")


async def test_a_run_for_many_partitions_is_stored_once(house: House) -> None:
    partitions = [await house.partition(f"q{number}") for number in range(1_000)]
    coalescer = Coalescer(house.broker)
    group = coalescer.group(partitions)

    await outcome(lambda done: coalescer.add_many([(group, run_of(b"1", b"2"))], done))

    assert stored(house) == [(tuple(one.partition_id for one in partitions), 2)]
    assert coalescer.rounds_appended == 1
    assert all(house.values(one) == [b"1", b"2"] for one in partitions)


async def test_runs_for_equal_groups_share_a_batch(house: House) -> None:
    first, second = await house.partition("a"), await house.partition("b")
    coalescer = Coalescer(house.broker)
    group = coalescer.group([first, second, first])
    assert coalescer.group([first, second]) is group
    assert coalescer.group([first]) is first

    for number in range(BATCH_RECORDS_MAX + 1):
        coalescer.add_many([(group, run_of(b"%d" % number))], lambda _error: None)
    await outcome(lambda done: coalescer.add_many([], done))

    ids = (first.partition_id, second.partition_id)
    assert stored(house) == [(ids, BATCH_RECORDS_MAX), (ids, 1)]


async def test_each_target_has_offsets_of_its_own(house: House) -> None:
    first, second = await house.partition("a"), await house.partition("b")
    coalescer = Coalescer(house.broker)
    await outcome(lambda done: coalescer.add(second, run_of(b"x", b"y"), done))
    reader = Reader()
    tail = house.broker.tail(second, 2, reader)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    run = run_of(b"1")

    group = coalescer.group([first, second])
    await outcome(lambda done: coalescer.add_many([(group, run)], done))
    tail.push_held()

    assert (run.base_offset, first.high_watermark, second.high_watermark) == (0, 1, 3)
    assert (reader.found, reader.writes) == ([(2, b"1")], 1)
    tail.close()


async def test_a_refused_append_takes_all_offsets_back(house: House) -> None:
    first, second = await house.partition("a"), await house.partition("b")
    coalescer = Coalescer(house.broker)
    group = coalescer.group([first, second])
    await house.storage.close()

    error = await outcome(lambda done: coalescer.add_many([(group, run_of(b"1"))], done))

    assert isinstance(error, StorageUnavailable)
    assert (first.log_end_offset, second.log_end_offset) == (0, 0)


async def test_refused_runs_leave_nothing_in_the_round(house: House) -> None:
    first, second = await house.partition("a"), await house.partition("b")
    coalescer = Coalescer(house.broker)
    group = coalescer.group([first, second])
    for _ in range(10):
        with pytest.raises(MessageTooLarge):
            coalescer.add_many([(group, run_of(bytes(2 << 20)))], print)
    assert len(coalescer._round.groups) == 1


async def test_bounds_of_any_topic_count(house: House) -> None:
    plain = await house.partition("plain")
    small = await house.partition("small", max_message_bytes="1000")
    compacted = await house.partition("compacted", cleanup_policy="compact")
    coalescer = Coalescer(house.broker)

    with pytest.raises(MessageTooLarge):
        coalescer.add_many([(coalescer.group([plain, small]), run_of(bytes(2_000)))], print)
    run = RecordRun(None, [b"1"], NO_HEADERS, 1_700_000_000_000)
    with pytest.raises(InvalidRecord):
        coalescer.add_many([(coalescer.group([plain, compacted]), run)], print)

    assert stored(house) == []


async def test_a_deleted_topic_refuses_the_group(house: House) -> None:
    first, second = await house.partition("a"), await house.partition("b")
    coalescer = Coalescer(house.broker)
    group = coalescer.group([first, second])
    coalescer.add_many([(group, run_of(b"kept"))], lambda _error: None)
    await house.topics.delete(second.topic.name)
    house.broker.delete_topic(second.topic, lambda _error: None)

    with pytest.raises(TopicNotFound):
        coalescer.add_many([(group, run_of(b"refused"))], print)

    await outcome(lambda done: coalescer.add_many([], done))
    assert house.values(first) == [b"kept"]


async def test_topics_that_stamp_records_have_a_batch_of_their_own(house: House) -> None:
    plain, other = await house.partition("plain"), await house.partition("other")
    stamped = await house.partition("stamped", message_timestamp_type="LogAppendTime")
    coalescer = Coalescer(house.broker)
    group = coalescer.group([plain, stamped, other])

    await outcome(lambda done: coalescer.add_many([(group, run_of(b"1"))], done))

    ids = plain.partition_id, other.partition_id
    assert stored(house) == [(ids, 1), ((stamped.partition_id,), 1)]
    assert house.values(stamped) == [b"1"]


async def test_a_batch_is_stored_for_each_leader_epoch(house: House) -> None:
    first, second = await house.partition("a"), await house.partition("b")
    second.leader_epoch = first.leader_epoch + 3
    coalescer = Coalescer(house.broker)
    group = coalescer.group([first, second])

    await outcome(lambda done: coalescer.add_many([(group, run_of(b"1"))], done))

    assert stored(house) == [((first.partition_id,), 1), ((second.partition_id,), 1)]
    epochs = [house.broker.end_offset_for_epoch(one, 9)[0] for one in (first, second)]
    assert epochs == [first.leader_epoch, second.leader_epoch]


steps = st.lists(
    st.one_of(
        st.tuples(
            st.sets(st.sampled_from(range(len(NAMES))), min_size=1).map(sorted),
            st.integers(1, 200),
        ),
        st.just("seal"),
        st.just("tick"),
    ),
    max_size=30,
)


class Model:
    """Batches of a round by the rule alone: (members, records), in order."""

    def __init__(self) -> None:
        self.open: list[tuple[list[int], int]] = []
        self.done: list[tuple[list[int], int]] = []

    def add(self, members: list[int], count: int) -> None:
        latest = {member: batch for batch in self.open for member in batch[0]}
        known = latest.get(members[0])
        if (
            known is not None
            and known[0] == members
            and all(latest[member] is known for member in members)
            and known[1] + count <= BATCH_RECORDS_MAX
        ):
            index = max(i for i, batch in enumerate(self.open) if batch is known)
            self.open[index] = (members, known[1] + count)
        else:
            self.open.append((members, count))

    def seal(self) -> None:
        self.done += self.open
        self.open = []


@settings(max_examples=examples(50), deadline=None)
@given(plan=steps)
def test_order_is_kept_and_all_is_stored_once(
    plan: list[str | tuple[list[int], int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    asyncio.run(check_plan(plan, tmp_path_factory.mktemp("fan-out")))


async def check_plan(plan: list[str | tuple[list[int], int]], folder: Path) -> None:
    async with running(folder, bytes_max=16 << 20) as house:
        partitions = [await house.partition(name) for name in NAMES]
        readers = [Reader() for _ in NAMES]
        tails = [
            house.broker.tail(one, 0, reader)
            for one, reader in zip(partitions, readers, strict=True)
        ]
        coalescer = Coalescer(house.broker)
        model = Model()
        wanted: list[list[bytes]] = [[] for _ in NAMES]
        groups: dict[tuple[int, ...], Partition | TargetGroup] = {}
        answers: list[int] = []
        asked = 0
        for step in plan:
            if step == "seal":
                coalescer.seal()
                model.seal()
            elif step == "tick":
                await outcome(lambda done: coalescer.add_many([], done))
                coalescer.seal()
                model.seal()
            else:
                assert not isinstance(step, str)
                members, count = step
                values = [b"%d.%d" % (asked, number) for number in range(count)]
                group = coalescer.group([partitions[member] for member in members])
                groups[tuple(members)] = group
                coalescer.add_many([(group, run_of(*values))], partial(note, answers, asked))
                model.add(members, count)
                for member in members:
                    wanted[member] += values
                asked += 1
        coalescer.seal()
        model.seal()
        await until(lambda: len(answers) == asked)

        ids = [one.partition_id for one in partitions]
        expected = [(tuple(ids[member] for member in batch), n) for batch, n in model.done]
        assert stored(house) == expected
        assert answers == list(range(asked))
        for tail in tails:
            for _ in range(3):
                await asyncio.sleep(0)
            tail.push_held()
            tail.close()
        for partition, values, reader in zip(partitions, wanted, readers, strict=True):
            assert house.values(partition) == values
            assert reader.found == list(enumerate(values))
