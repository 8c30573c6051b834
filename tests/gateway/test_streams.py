"""Keyed state in an internal topic: it survives restarts, and stays small by itself."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.coalescer import Coalescer
from gateway.errors import MessageTooLarge, StorageFull
from gateway.model import TopicName
from gateway.partition import Partition
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.sharded_stream import ShardedStream
from gateway.streams import VALUE_BYTES_MAX, InternalStream, Item
from tests.gateway.kernel_in_memory import House, outcome, running
from tests.support.examples import examples


@pytest.fixture(params=[1, 64], ids="{} shards".format)
async def house(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    async with running(tmp_path, bytes_max=4 << 20, shard_count=request.param) as one:
        yield one


async def opened(house: House, coalescer: Coalescer | None = None) -> ShardedStream:
    stream = await ShardedStream.open(
        "__cursors", house.broker, house.topics, house.clock, coalescer=coalescer
    )
    await stream.load()
    return stream


def partition_of(house: House) -> Partition:
    topic = house.topics.get(TopicName("default", "__cursors"))
    return house.broker.partition(topic, 0)


def partitions_of(house: House) -> list[Partition]:
    topic = house.topics.get(TopicName("default", "__cursors"))
    return [house.broker.partition(topic, number) for number in range(house.shard_count)]


async def small(house: House, room_bytes: int) -> InternalStream:
    """A stream that rewrites itself early."""
    await opened(house)
    stream = InternalStream(
        partition_of(house), house.broker, house.clock, rewrite_room_bytes=room_bytes
    )
    await stream.load()
    return stream


async def put(stream: InternalStream | ShardedStream, *items: Item) -> None:
    assert await outcome(lambda on_done: stream.put(items, on_done)) is None


async def test_its_topic_is_internal_and_kept(house: House) -> None:
    await opened(house)

    topic = house.topics.get(TopicName("default", "__cursors"))
    assert topic.is_internal
    assert topic.settings.cleanup_policy == "compact"


async def test_last_values_survive_a_restart(house: House) -> None:
    stream = await opened(house)
    await put(stream, (b"a", b"1"), (b"b", b"1"), (b"c", b""))
    await put(stream, (b"a", b"2"), (b"b", None))

    await house.restart()
    again = await opened(house)

    assert dict(again.values) == {b"a": b"2", b"c": b""}
    assert again.live_bytes == stream.live_bytes == len(b"a2c")


async def test_values_show_at_once(house: House) -> None:
    stream = await opened(house)
    done = asyncio.Event()

    stream.put([(b"a", b"1")], lambda _: done.set())

    assert stream.get(b"a") == b"1"
    assert not done.is_set()
    await done.wait()


async def test_puts_of_one_tick_are_one_append(house: House) -> None:
    coalescer = Coalescer(house.broker, reserved=True)
    stream = await opened(house, coalescer)

    await asyncio.gather(*(put(stream, (b"%d" % n, b"v")) for n in range(10)))

    assert coalescer.rounds_appended == 1


async def test_nothing_to_put_is_done_later_too(house: House) -> None:
    stream = await opened(house)

    await put(stream)

    assert partition_of(house).log_end_offset == 0


async def test_a_value_above_the_bound_changes_nothing(house: House) -> None:
    stream = await opened(house)

    with pytest.raises(MessageTooLarge):
        stream.put([(b"a", bytes(VALUE_BYTES_MAX))], lambda _: None)

    assert stream.get(b"a") is None


async def test_a_refused_put_is_undone(house: House) -> None:
    stream = await opened(house)
    await put(stream, (b"a", b"old"), (b"filler", bytes(4_190_000)))

    outcomes = await asyncio.gather(
        outcome(lambda on_done: stream.put([(b"a", b"new"), (b"b", bytes(3_000))], on_done)),
        outcome(lambda on_done: stream.put([(b"a", None)], on_done)),
        outcome(lambda on_done: stream.put([(b"c", b"1"), (b"c", bytes(3_000))], on_done)),
    )

    assert [type(error) for error in outcomes] == [StorageFull] * 3
    assert [stream.get(key) for key in (b"a", b"b", b"c")] == [b"old", None, None]
    await put(stream, (b"a", b"after"))
    await house.restart()
    assert (await opened(house)).get(b"a") == b"after"


async def test_what_is_beside_is_in_the_same_append(house: House) -> None:
    coalescer = Coalescer(house.broker, reserved=True)
    stream = await opened(house, coalescer)
    partition = await house.partition("t")
    run = RecordRun(b"k", [b"1", b"2"], NO_HEADERS, 1)

    coalescer.add(partition, RecordRun(None, [b"0"], NO_HEADERS, 1), lambda _: None)
    assert await outcome(
        lambda on_done: stream.put([(b"a", b"1")], on_done, beside=[(partition, run)])
    ) is None  # fmt: skip

    assert coalescer.rounds_appended == 1
    assert house.values(partition) == [b"0", b"1", b"2"]
    assert run.base_offset == 1
    await house.restart()
    assert (await opened(house)).get(b"a") == b"1"


async def test_a_put_of_nothing_still_appends_what_is_beside(house: House) -> None:
    stream = await opened(house)
    partition = await house.partition("t")
    part = partition, RecordRun(b"k", [b"1"], NO_HEADERS, 1)

    assert await outcome(lambda on_done: stream.put([], on_done, beside=[part])) is None

    assert house.values(partition) == [b"1"]


async def test_what_is_refused_beside_changes_nothing(house: House) -> None:
    stream = await opened(house)
    partition = await house.partition("t", max_message_bytes="100")
    part = partition, RecordRun(b"k", [bytes(100)], NO_HEADERS, 1)

    with pytest.raises(MessageTooLarge):
        stream.put([(b"a", b"1")], lambda _: None, beside=[part])

    assert stream.get(b"a") is None
    stream.flush()
    assert partition_of(house).log_end_offset == 0


async def test_it_flushes_on_request(house: House) -> None:
    stream = await opened(house)
    stream.put([(b"a", b"1")], lambda _: None)

    stream.flush()

    assert sum(one.log_end_offset for one in partitions_of(house)) == 1


async def test_it_stays_small(house: House) -> None:
    stream = await small(house, room_bytes=20_000)
    await put(stream, *((b"key %d" % n, b"stays") for n in range(300)))
    for n in range(200):
        await put(stream, (b"hot", b"%d" % n * 100))

    assert stream.rewrites >= 1
    partition = partition_of(house)
    assert partition.log_start_offset > 0
    assert house.broker.size_bytes(partition) < 2 * stream.live_bytes + 30_000


async def test_what_is_put_during_a_rewrite_wins(house: House) -> None:
    stream = await small(house, room_bytes=1)
    items: list[Item] = [(b"key %d" % n, b"old") for n in range(2_000)]
    await put(stream, *items)  # begins a pass of several appends
    assert stream.rewrites == 0
    await put(stream, (b"key 1", b"new"), (b"key 1999", None))
    while not stream.rewrites:
        await put(stream, (b"tick", b""))

    await house.restart()
    again = await opened(house)

    assert dict(again.values) == dict(stream.values)
    assert again.values[b"key 1"] == b"new"
    assert b"key 1999" not in again.values


@given(
    puts=st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([b"a", b"b", b"c", b"d"]), st.none() | st.binary(max_size=40)
            ),
            min_size=1,
            max_size=4,
        ),
        max_size=30,
    ),
    room_bytes=st.integers(1, 400),
)
@settings(max_examples=examples(25), deadline=None)
def test_a_restart_finds_what_was_put(
    tmp_path_factory: pytest.TempPathFactory, puts: list[list[Item]], room_bytes: int
) -> None:
    async def run() -> None:
        async with running(tmp_path_factory.mktemp("house")) as house:
            stream = await small(house, room_bytes)
            model: dict[bytes, bytes] = {}
            for items in puts:
                for key, value in items:
                    model.pop(key, None)
                    if value is not None:
                        model[key] = value
                await put(stream, *items)
            await house.restart()
            again = await opened(house)
            assert dict(again.values) == dict(stream.values) == model
            assert again.live_bytes == stream.live_bytes

    asyncio.run(run())
