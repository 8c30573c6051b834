"""Runs of many publishers share batches; each learns where its own records are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.coalescer import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    ROUND_BYTES_MAX,
    Coalescer,
    Part,
)
from gateway.errors import (
    InvalidRecord,
    MessageTooLarge,
    PolicyViolation,
    StorageFull,
    StorageUnavailable,
    TopicNotFound,
)
from gateway.partition import Partition
from gateway.records.codec import NO_HEADERS, decode_batch
from gateway.records.record_run import RecordRun
from gateway.records.singles import RecordFrame, SingleRecords
from gateway.storage import OnDone
from gateway.writer import Write
from tests.gateway.kernel_in_memory import House, running
from tests.support.examples import examples


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path, bytes_max=4 << 20) as one:
        yield one


def run_of(*values: bytes | None, native: object | None = None) -> RecordRun:
    return RecordRun(b"key", values, NO_HEADERS, 1_700_000_000_000, native)


class Publisher:
    """Adds runs and waits for all of them."""

    def __init__(self, coalescer: Coalescer) -> None:
        self.coalescer = coalescer
        self.runs: list[RecordRun] = []
        self.waiting: list[asyncio.Future[StorageUnavailable | None]] = []
        self.order: list[int] = []

    def add(self, partition: Partition, *values: bytes | None) -> RecordRun:
        run = run_of(*values)
        self.coalescer.add(partition, run, self._expected())
        self.runs.append(run)
        return run

    def add_many(self, *parts: Part) -> None:
        self.coalescer.add_many(parts, self._expected())

    def _expected(self) -> OnDone:
        done: asyncio.Future[StorageUnavailable | None] = asyncio.Future()
        number = len(self.waiting)
        self.waiting.append(done)

        def on_done(error: StorageUnavailable | None) -> None:
            self.order.append(number)
            done.set_result(error)

        return on_done

    async def all_done(self) -> list[StorageUnavailable | None]:
        return await asyncio.gather(*self.waiting)


async def test_runs_of_one_tick_are_one_batch(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    for value in (b"a", b"b", b"c"):
        publisher.add(partition, value)
    publisher.add(partition, b"d", b"e")
    assert [run.base_offset for run in publisher.runs] == [-1] * 4

    assert await publisher.all_done() == [None] * 4

    assert [len(batch) for batch in house.batches(partition)] == [5]
    assert house.values(partition) == [b"a", b"b", b"c", b"d", b"e"]
    assert [run.base_offset for run in publisher.runs] == [0, 1, 2, 3]


async def test_a_round_is_one_append_over_all_partitions(house: House) -> None:
    first, second = await house.partition("a"), await house.partition("b")
    coalescer = Coalescer(house.broker)
    publisher = Publisher(coalescer)

    publisher.add(first, b"1")
    publisher.add(second, b"2")
    await publisher.all_done()

    assert coalescer.rounds_appended == 1
    assert (house.values(first), house.values(second)) == ([b"1"], [b"2"])


async def test_no_parts_are_done_in_a_later_turn(house: House) -> None:
    coalescer = Coalescer(house.broker)
    publisher = Publisher(coalescer)

    publisher.add_many()

    assert publisher.order == []
    assert await publisher.all_done() == [None]
    assert coalescer.rounds_appended == 0


async def test_offsets_count_on_from_what_is_there(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    publisher.add(partition, b"0", b"1")
    await publisher.all_done()

    run = publisher.add(partition, b"2")
    await publisher.all_done()

    assert run.base_offset == 2


async def test_what_comes_while_a_round_is_synced_waits_for_it(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    publisher.add(partition, b"first")
    publisher.coalescer.seal()
    publisher.add(partition, b"second")
    publisher.add(partition, b"third")

    await publisher.all_done()

    assert [len(batch) for batch in house.batches(partition)] == [1, 2]


async def test_the_next_round_is_appended_before_the_last_one_is_answered(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    rounds: list[int] = []
    publisher.coalescer.add(
        partition, run_of(b"1"), lambda _: rounds.append(publisher.coalescer.rounds_appended)
    )
    publisher.coalescer.seal()
    publisher.add(partition, b"2")

    await publisher.all_done()

    assert rounds == [2]


async def test_a_batch_is_sealed_at_its_bound_of_records(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))

    for _ in range(BATCH_RECORDS_MAX + 1):
        publisher.add(partition, b"")
    await publisher.all_done()

    assert [len(batch) for batch in house.batches(partition)] == [BATCH_RECORDS_MAX, 1]


async def test_a_batch_is_sealed_at_its_bound_of_bytes(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))

    for _ in range(3):
        publisher.add(partition, bytes(BATCH_BYTES_MAX // 2 - 100))
    await publisher.all_done()

    assert [len(batch) for batch in house.batches(partition)] == [2, 1]


async def test_a_large_round_does_not_wait(house: House) -> None:
    partitions = [await house.partition(f"t{n}") for n in range(4)]
    coalescer = Coalescer(house.broker)
    publisher = Publisher(coalescer)
    publisher.add(partitions[0], b"in flight")
    coalescer.seal()

    for partition in partitions:
        publisher.add(partition, bytes(ROUND_BYTES_MAX // 4))
    await publisher.all_done()

    assert coalescer.rounds_appended == 2


async def test_a_large_run_is_cut_and_stays_one_append(house: House) -> None:
    partition = await house.partition("t")
    coalescer = Coalescer(house.broker)
    publisher = Publisher(coalescer)

    small = publisher.add(partition, b"small")
    large = publisher.add(partition, *[b"%d" % n for n in range(BATCH_RECORDS_MAX + 50)])
    last = publisher.add(partition, b"last")
    await publisher.all_done()

    assert coalescer.rounds_appended == 1
    assert [len(batch) for batch in house.batches(partition)] == [1, BATCH_RECORDS_MAX, 51]
    assert (small.base_offset, large.base_offset) == (0, 1)
    assert last.base_offset == BATCH_RECORDS_MAX + 51
    assert house.values(partition)[1:-1] == list(large.values)


async def test_a_run_of_large_records_is_cut_by_bytes(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    half = bytes(BATCH_BYTES_MAX // 2 - 100)

    publisher.add(partition, half, half, bytes(2 * BATCH_BYTES_MAX), None, b"", half)
    await publisher.all_done()

    assert [len(batch) for batch in house.batches(partition)] == [2, 1, 3]


async def test_a_round_of_many_batches_is_one_append(house: House) -> None:
    partition = await house.partition("t")
    coalescer = Coalescer(house.broker)
    publisher = Publisher(coalescer)

    for _ in range(3 * BATCH_RECORDS_MAX):
        publisher.add(partition, b"")
    await publisher.all_done()

    assert coalescer.rounds_appended == 1
    assert [run.base_offset for run in publisher.runs] == list(range(3 * BATCH_RECORDS_MAX))


async def test_a_round_has_a_bound_that_one_tick_cannot_pass(house: House) -> None:
    partition = await house.partition("t")
    coalescer = Coalescer(house.broker)
    publisher = Publisher(coalescer)

    for _ in range(6):
        publisher.add(partition, bytes(ROUND_BYTES_MAX // 2))
    await publisher.all_done()

    assert coalescer.rounds_appended == 3


async def test_writes_carry_the_runs_that_they_were_made_of(house: House) -> None:
    partition = await house.partition("t")
    seen = Seen(partition)
    publisher = Publisher(Coalescer(house.broker))
    first, second = publisher.add(partition, b"1"), publisher.add(partition, b"2", None)

    await publisher.all_done()

    assert [write.runs for write in seen.writes] == [[first, second]]


async def test_a_write_whose_records_have_keys_of_their_own_carries_no_runs(
    house: House,
) -> None:
    partition = await house.partition("t")
    seen = Seen(partition)
    publisher = Publisher(Coalescer(house.broker))
    frames = [RecordFrame(b"a", NO_HEADERS, 1), RecordFrame(b"b", NO_HEADERS, 1)]

    publisher.add(partition, b"1")
    of_two = SingleRecords(frames, [b"2", b"3"], 1_700_000_000_000)
    publisher.coalescer.add(partition, of_two, publisher._expected())
    await publisher.all_done()

    (write,) = seen.writes
    assert write.runs is None
    assert [record.key for record in decode_batch(write.batch)] == [b"key", b"a", b"b"]


async def test_parts_of_one_add_are_in_one_round_or_refused_together(house: House) -> None:
    first, second = (
        await house.partition("a"),
        await house.partition("b", max_message_bytes="500"),
    )
    coalescer = Coalescer(house.broker)
    publisher = Publisher(coalescer)

    with pytest.raises(MessageTooLarge):
        coalescer.add_many([(first, run_of(b"1")), (second, run_of(bytes(500)))], print)
    runs = run_of(b"2"), run_of(b"3", b"4")
    publisher.add_many((first, runs[0]), (second, runs[1]), (first, run_of(b"5")))
    assert await publisher.all_done() == [None]

    assert coalescer.rounds_appended == 1
    assert (house.values(first), house.values(second)) == ([b"2", b"5"], [b"3", b"4"])
    assert [run.base_offset for run in runs] == [0, 0]


async def test_others_may_append_between_add_and_the_end_of_the_round(house: House) -> None:
    partition = await house.partition("t")
    publisher, other = Publisher(Coalescer(house.broker)), Publisher(Coalescer(house.broker))
    run = publisher.add(partition, b"second")
    other.add(partition, b"first")
    other.coalescer.seal()

    await publisher.all_done()

    assert run.base_offset == 1


async def test_writes_carry_the_native_runs_of_their_records(house: House) -> None:
    partition = await house.partition("t")
    seen = Seen(partition)
    publisher = Publisher(Coalescer(house.broker))
    count = BATCH_RECORDS_MAX + 1

    publisher.add_many((partition, run_of(b"0", native="a")))
    publisher.add_many((partition, run_of(*[b""] * count, native="b")))
    publisher.add_many((partition, run_of(b"", native="c")))
    await publisher.all_done()

    assert [write.natives for write in seen.writes] == [
        [(0, "a")], [(1, "b")], [(1, "b"), (count + 1, "c")],
    ]  # fmt: skip


async def test_a_batch_with_a_run_of_no_native_form_has_none(house: House) -> None:
    partition = await house.partition("t")
    seen = Seen(partition)
    publisher = Publisher(Coalescer(house.broker))

    publisher.add_many((partition, run_of(b"0", native="a")), (partition, run_of(b"1")))
    await publisher.all_done()

    assert [write.natives for write in seen.writes] == [None]


class Seen:
    """Keeps what is appended to a partition."""

    def __init__(self, partition: Partition) -> None:
        self.writes: list[Write] = []
        partition.waiters.add(self)

    def on_appended(self, write: Write) -> None:
        self.writes.append(write)

    def on_truncated(self) -> None:
        """Nothing more."""

    def on_stable(self) -> None:
        """Nothing more."""

    reads_uncommitted = False
    takes_pending = False

    def on_gone(self) -> None:
        """Nothing more."""


async def test_a_topic_that_is_gone_takes_nothing(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    publisher.add(partition, b"before")
    house.broker.delete_topic(partition.topic, lambda _error: None)
    assert partition.log_end_offset == 1

    with pytest.raises(TopicNotFound):
        publisher.coalescer.add(partition, run_of(b"after"), print)

    assert await publisher.all_done() == [None]
    assert publisher.runs[0].base_offset == 0


async def test_compacted_topics_take_no_record_without_a_key(house: House) -> None:
    partition = await house.partition("t", cleanup_policy="compact")
    run = RecordRun(None, [b"v"], NO_HEADERS, 1)

    with pytest.raises(InvalidRecord):
        Coalescer(house.broker).add(partition, run, print)


async def test_what_holders_keep_is_bounded_for_runs_too(house: House) -> None:
    partition = await house.partition("t", cleanup_policy="queue", hold_bytes_max="100")
    publisher = Publisher(Coalescer(house.broker))
    publisher.add(partition, bytes(200))
    await publisher.all_done()

    with pytest.raises(PolicyViolation):
        publisher.coalescer.add(partition, run_of(b"more"), print)


@given(
    sizes=st.lists(st.lists(st.none() | st.integers(0, 400), min_size=1, max_size=12)),
    bytes_max=st.integers(600, 3_000),
)
@settings(max_examples=examples(30), deadline=None)
def test_any_runs_come_out_as_they_went_in(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int | None]], bytes_max: int
) -> None:
    async def run() -> None:
        async with running(tmp_path_factory.mktemp("house")) as house:
            partition = await house.partition("t", max_message_bytes=str(bytes_max))
            publisher = Publisher(Coalescer(house.broker))
            for some in sizes:
                publisher.add(partition, *[None if n is None else bytes(n) for n in some])
            await publisher.all_done()
            values = [value for run in publisher.runs for value in run.values]
            assert house.values(partition) == values
            batches = house.broker.read(partition, 0, bytes_max=1 << 30) or ()
            assert all(len(batch) <= bytes_max for batch in batches)
            offset = 0
            for run in publisher.runs:
                assert run.base_offset == offset
                offset += len(run.values)

    asyncio.run(run())


async def test_a_topics_own_bound_holds(house: House) -> None:
    partition = await house.partition("t", max_message_bytes="1000")
    publisher = Publisher(Coalescer(house.broker))

    with pytest.raises(MessageTooLarge):
        publisher.coalescer.add(partition, run_of(bytes(1_000)), print)
    for _ in range(4):
        publisher.add(partition, bytes(400))
    await publisher.all_done()

    assert [len(batch) for batch in house.batches(partition)] == [2, 2]


async def test_log_append_time_is_marked(house: House) -> None:
    partition = await house.partition("t", message_timestamp_type="LogAppendTime")
    publisher = Publisher(Coalescer(house.broker))

    publisher.add(partition, b"v")
    await publisher.all_done()

    (batch,) = house.broker.read(partition, 0, bytes_max=1 << 20) or ()
    assert batch[22] & 0x08


async def test_a_full_disk_refuses_every_run_the_last_first(house: House) -> None:
    partition = await house.partition("t")
    publisher = Publisher(Coalescer(house.broker))
    filler = Publisher(Coalescer(house.broker))
    for size_bytes in (1_000_000, 1_000_000, 1_000_000, 1_000_000, 190_000):
        filler.add(partition, bytes(size_bytes))
    await filler.all_done()

    for _ in range(3):
        publisher.add(partition, bytes(5_000))
    outcomes = await publisher.all_done()

    assert [type(error) for error in outcomes] == [StorageFull] * 3
    assert publisher.order == [2, 1, 0]
    assert partition.log_end_offset == 5
