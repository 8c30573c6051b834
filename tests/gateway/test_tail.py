"""A tail hands out each batch once and in order, from the log and from the live end."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.coalescer import Coalescer
from gateway.errors import GatewayError, StorageUnavailable, TopicNotFound
from gateway.model import Buffer, parse_batch_header
from gateway.partition import Partition
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.tail import TAIL_LIVE_BYTES_MAX, Tail
from gateway.writer import Write
from tests.gateway.kernel_in_memory import House, running
from tests.support.batches import sample_batch
from tests.support.examples import examples
from tests.support.waiting import turns


class Watcher:
    """Takes whatever comes until it is full; ``pushes`` says from where and which offsets."""

    def __init__(self) -> None:
        self.has_room = True
        self.pushes: list[tuple[str, list[int]]] = []
        self.natives: list[object] = []
        self.errors: list[GatewayError] = []
        self.next_offset = 0

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offsets in self.pushes for offset in offsets]

    def on_batches(self, partition: Partition, batches: Sequence[Buffer]) -> bool:  # noqa: ARG002
        headers = [parse_batch_header(batch) for batch in batches]
        self.next_offset = headers[-1].last_offset + 1
        self.pushes.append(("log", [header.base_offset for header in headers]))
        return self.has_room

    def on_writes(self, partition: Partition, writes: Sequence[Write]) -> bool:  # noqa: ARG002
        assert writes[0].base_offset == self.next_offset
        self.next_offset = writes[-1].end_offset
        assert writes[-1].end_offset <= writes[-1].partition.high_watermark
        self.pushes.append(("live", [write.base_offset for write in writes]))
        self.natives += [write.natives for write in writes]
        return self.has_room

    def on_tail_error(self, partition: Partition, error: GatewayError) -> None:  # noqa: ARG002
        self.errors.append(error)


def start_append(house: House, partition: Partition, *, count: int = 1, size: int = 8) -> None:
    """Append a batch as a Kafka producer does."""
    write = house.broker.prepare(partition, sample_batch(count=count, value=bytes(size)))
    assert isinstance(write, Write)
    house.broker.append([write], _ignore)


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result."""


async def live(house: House, partition: Partition) -> tuple[Tail, Watcher]:
    """A tail that has all there is."""
    watcher = Watcher()
    watcher.next_offset = partition.high_watermark
    tail = house.broker.tail(partition, partition.high_watermark, watcher)
    await turns()
    assert partition.waiters
    return tail, watcher


async def test_the_live_end_is_pushed_without_a_read(house: House) -> None:
    partition = await house.partition("t")
    _, watcher = await live(house, partition)
    before = house.broker.reader.bytes_read

    for _ in range(3):
        start_append(house, partition, count=2)
        await turns()

    assert watcher.pushes == [("live", [0]), ("live", [2]), ("live", [4])]
    assert house.broker.reader.bytes_read == before


async def test_appends_of_one_turn_are_one_push(house: House) -> None:
    partition = await house.partition("t")
    _, watcher = await live(house, partition)

    for _ in range(3):
        start_append(house, partition)
    await turns()

    assert watcher.pushes == [("live", [0, 1, 2])]


async def test_native_runs_come_with_their_writes(house: House) -> None:
    partition = await house.partition("t")
    _, watcher = await live(house, partition)
    coalescer = Coalescer(house.broker)

    start_append(house, partition)
    coalescer.add(partition, RecordRun(b"k", [b"v"], NO_HEADERS, 1, "native"), _ignore)
    await turns()

    assert watcher.natives == [None, [(1, "native")]]


async def test_what_is_held_is_bounded_and_the_rest_comes_from_the_log(house: House) -> None:
    partition = await house.partition("t", max_message_bytes=str(TAIL_LIVE_BYTES_MAX * 2))
    _, watcher = await live(house, partition)

    for _ in range(3):
        start_append(house, partition, size=TAIL_LIVE_BYTES_MAX // 2 - 1_000)
    start_append(house, partition)
    await turns(12)
    start_append(house, partition, size=TAIL_LIVE_BYTES_MAX + 1)
    await turns(12)
    start_append(house, partition)
    await turns()

    assert watcher.offsets == [0, 1, 2, 3, 4, 5]
    assert watcher.pushes[0] == ("live", [0, 1])
    assert ("log", [4]) in watcher.pushes
    assert watcher.pushes[-1] == ("live", [5])


async def test_a_paused_tail_holds_nothing_and_goes_on_from_the_log(house: House) -> None:
    partition = await house.partition("t")
    tail, watcher = await live(house, partition)
    watcher.has_room = False
    start_append(house, partition)
    await turns()

    assert not partition.waiters
    start_append(house, partition)
    start_append(house, partition)
    await turns()
    assert watcher.offsets == [0]
    watcher.has_room = True
    tail.resume()
    await turns()
    start_append(house, partition)
    await turns()

    assert watcher.pushes == [("live", [0]), ("log", [1, 2]), ("live", [3])]


async def test_a_tail_that_begins_behind_the_end_waits_for_its_offset(house: House) -> None:
    partition = await house.partition("t")
    start_append(house, partition, count=3)
    start_append(house, partition, count=3)
    watcher = Watcher()
    house.broker.tail(partition, 4, watcher)  # both batches are on their way
    await turns()

    assert watcher.offsets == [3]


async def test_what_is_held_comes_before_the_end_of_a_deleted_topic(house: House) -> None:
    partition = await house.partition("t")
    _, watcher = await live(house, partition)
    done: asyncio.Future[None] = asyncio.Future()
    write = house.broker.prepare(partition, sample_batch())
    assert isinstance(write, Write)

    def delete(_error: StorageUnavailable | None) -> None:
        house.broker.delete_topic(partition.topic, _ignore)
        done.set_result(None)

    house.broker.append([write], delete)
    await done
    await turns()

    assert watcher.pushes == [("live", [0])]
    assert [type(error) for error in watcher.errors] == [TopicNotFound]


async def test_a_tail_that_is_closed_by_a_push_pushes_no_more(house: House) -> None:
    partition = await house.partition("t")
    tail, watcher = await live(house, partition)
    start_append(house, partition)
    start_append(house, partition)
    tail.close()
    await turns()

    assert (watcher.pushes, partition.waiters) == ([], set())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("kafka"), st.integers(1, 4)),
        st.tuples(st.just("run"), st.integers(1, 600)),
        st.tuples(st.just("large"), st.integers(1, 3)),
        st.tuples(st.just("turn"), st.integers(1, 4)),
        st.tuples(st.just("full"), st.just(0)),
        st.tuples(st.just("room"), st.just(0)),
    ),
    max_size=40,
)


@given(steps=STEPS)
@settings(max_examples=examples(60), deadline=None)
def test_any_interleaving_hands_out_each_batch_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    async def run() -> None:
        async with running(tmp_path_factory.mktemp("house")) as house:
            partition = await house.partition("t", max_message_bytes="8000000")
            watcher = Watcher()
            tail = house.broker.tail(partition, 0, watcher)
            coalescer = Coalescer(house.broker)
            for step, number in steps:
                if step == "kafka":
                    start_append(house, partition, count=number)
                elif step == "run":
                    values = [b"v"] * number
                    run = RecordRun(None, values, NO_HEADERS, 1, "native")
                    coalescer.add(partition, run, _ignore)
                elif step == "large":
                    start_append(house, partition, size=number * 1_500_000)
                elif step == "turn":
                    await turns(number)
                else:
                    watcher.has_room = step == "room"
                    if watcher.has_room:
                        tail.resume()
            watcher.has_room = True
            tail.resume()
            coalescer.seal()
            async with asyncio.timeout(60):
                while watcher.next_offset < partition.log_end_offset:
                    await turns(1)
            everything = house.broker.read(partition, 0, bytes_max=1 << 30) or ()
            assert watcher.offsets == [parse_batch_header(b).base_offset for b in everything]
            assert watcher.errors == []

    asyncio.run(run())
