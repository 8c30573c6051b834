"""A Kafka producer's batch: what is due is appended at once, what is not waits."""

import struct
from collections.abc import Sequence

import pytest

from gateway.clock import ManualClock
from gateway.config.settings import BrokerConfig
from gateway.delays.split import Split, split
from gateway.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    PolicyViolation,
    StorageFull,
)
from gateway.model import HEADER_BYTES, parse_batch_header
from gateway.partition import Write
from gateway.producers import PRODUCERS_TOPIC, ProducerStates
from gateway.records.codec import Headers, NewRecord, encode_batch
from gateway.records.compression import GZIP, LZ4, compress
from gateway.sharded_stream import ShardedStream
from gateway.topics.manager import Topic
from gateway.write_steps import SplitWrite, split_batch
from gateway.writer import Duplicate
from tests.gateway.delays.delay_node import World
from tests.gateway.kernel_in_memory import outcome
from tests.support.batches import patched

LATER_MS = 60_000


def record(
    world: World, value: bytes, *, after_ms: int | None = None, other: Headers = ()
) -> NewRecord:
    """A record that waits unless ``after_ms`` is None."""
    now_unix_ms = world.clock.unix_ms()
    headers = list(other)
    if after_ms is not None:
        headers.append(("deliver-at", b"%d" % (now_unix_ms + after_ms)))
    return now_unix_ms - 7, b"key", value, headers


def compressed(batch: bytearray, codec: int) -> bytearray:
    packed = batch[:HEADER_BYTES] + compress(codec, bytes(batch[HEADER_BYTES:]))
    struct.pack_into(">i", packed, 8, len(packed) - 12)
    return patched(packed, 21, ">h", codec)


async def produce(world: World, topic: Topic, batch: bytearray) -> Write | Duplicate:
    """Append a batch as adapters do."""
    write = world.broker.prepare(world.partition(topic), batch)
    if isinstance(write, Write):
        assert await outcome(lambda on_done: world.broker.append([write], on_done)) is None
    return write


def idempotent(records: Sequence[NewRecord], sequence: int) -> bytearray:
    return encode_batch(list(records), producer_id=9, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("codec", [0, GZIP, LZ4])
async def test_due_records_stay_and_the_others_wait(world: World, codec: int) -> None:
    topic = await world.topic()
    batch = encode_batch(
        [
            record(world, b"now"),
            record(world, b"later", after_ms=LATER_MS, other=[("a", b"1")]),
            record(world, b"past", after_ms=-1),
            record(world, b"at once", after_ms=0),
        ]
    )

    found = await produce(world, topic, compressed(batch, codec) if codec else batch)
    before = world.values(topic)
    assert isinstance(world.clock, ManualClock)
    world.clock.advance(LATER_MS)
    await world.settled()

    assert isinstance(found, SplitWrite)
    assert before == [b"now", b"past", b"at once"]
    assert world.values(topic)[3:] == [b"later"]
    moved = world.records(topic)[-1]
    assert moved.timestamp_unix_ms == world.clock.unix_ms() - LATER_MS - 7
    assert (moved.key, moved.headers[0]) == (b"key", ("a", b"1"))
    assert [name for name, _ in moved.headers] == ["a", "deliver-at", "message-id"]


async def test_batch_without_delays_is_stored_as_it_came(world: World) -> None:
    topic = await world.topic()
    batch = encode_batch([record(world, b"now", after_ms=-5), record(world, b"deliver-at")])
    data = bytes(batch[HEADER_BYTES:])

    found = await produce(world, topic, batch)

    assert isinstance(found, Write)
    stored = world.broker.read(world.partition(topic), 0, bytes_max=1 << 20)
    assert stored is not None
    assert bytes(stored[0][HEADER_BYTES:]) == data


@pytest.mark.parametrize("due", [(), (0,), (1, 2), (0, 3)])
async def test_what_is_appended_says_how_many_records_it_has(
    world: World, due: Sequence[int]
) -> None:
    """Queues read a batch by its header as soon as it is written."""
    topic = await world.topic()
    records = [record(world, b"%d" % n, after_ms=None if n in due else 9) for n in range(4)]

    found = await produce(world, topic, idempotent(records, 0))

    assert isinstance(found, SplitWrite)
    assert found.now is not None
    header, own = found.now.header, parse_batch_header(found.now.batch)
    assert (header.record_count, own.record_count) == (len(due), len(due))
    assert (header.size_bytes, header.crc) == (own.size_bytes, own.crc)
    partition = world.partition(topic)
    assert (partition.log_end_offset, partition.high_watermark) == (4, 4)


async def test_batch_of_which_nothing_is_due_takes_no_offsets(world: World) -> None:
    topic = await world.topic()

    await produce(world, topic, encode_batch([record(world, b"x", after_ms=LATER_MS)]))

    assert world.partition(topic).log_end_offset == 0
    assert world.delays.count(topic) == 1


@pytest.mark.parametrize("due", [0, 1])
async def test_sequences_are_checked_and_known_after_a_restart(world: World, due: int) -> None:
    topic = await world.topic()
    first = [record(world, b"due")] * due + [record(world, b"x", after_ms=LATER_MS)] * 3
    batch = idempotent(first, 0)
    again, third = bytearray(batch), idempotent([record(world, b"y")], len(first))

    await produce(world, topic, batch)
    repeated = await produce(world, topic, bytearray(again))
    await world.restart()
    await load_producers(world)
    after = await produce(world, topic, again)
    await produce(world, topic, third)
    assert isinstance(world.clock, ManualClock)
    world.clock.advance(LATER_MS)
    await world.settled()

    assert isinstance(repeated, Duplicate)
    assert isinstance(after, Duplicate)
    assert world.values(topic) == [b"due"] * due + [b"y"] + [b"x"] * 3
    assert world.delays.total == 0


async def load_producers(world: World) -> None:
    """Rebuild producers' state from the log, as a start does."""
    stream = await ShardedStream.open(PRODUCERS_TOPIC, world.broker, world.topics, world.clock)
    states = ProducerStates(stream, world.broker, world.topics, world.clock, BrokerConfig())
    await states.load()
    states.stop()


@pytest.mark.parametrize("value", [b"soon", b"-5", b"", b"1" * 16, b"1.5", "٣".encode()])
async def test_a_time_that_is_none_refuses_the_batch(world: World, value: bytes) -> None:
    topic = await world.topic()
    batch = encode_batch([(world.clock.unix_ms(), None, b"x", [("deliver-at", value)])])
    if not value:
        assert isinstance(await produce(world, topic, batch), Write)
        return

    with pytest.raises(InvalidRecord):
        await produce(world, topic, batch)
    assert world.partition(topic).log_end_offset == 0


async def test_what_is_too_far_ahead_is_refused_as_a_whole(world: World) -> None:
    topic = await world.topic(delay_max_ms="1000")
    batch = encode_batch([record(world, b"now"), record(world, b"x", after_ms=1_001)])

    with pytest.raises(PolicyViolation):
        await produce(world, topic, batch)

    assert world.delays.total == world.partition(topic).log_end_offset == 0


async def test_records_that_contradict_themselves_are_refused(world: World) -> None:
    topic = await world.topic()
    batch = encode_batch([record(world, b"x", after_ms=LATER_MS)])
    batch[HEADER_BYTES] += 8  # the record's length
    batch = patched(batch, 21, ">h", 0)

    with pytest.raises(CorruptBatch):
        await produce(world, topic, batch)


async def test_log_append_time_is_that_of_the_due_append(world: World) -> None:
    topic = await world.topic(message_timestamp_type="LogAppendTime")

    await produce(world, topic, encode_batch([record(world, b"x", after_ms=LATER_MS)]))
    assert isinstance(world.clock, ManualClock)
    world.clock.advance(LATER_MS)
    await world.settled()

    [moved] = world.records(topic)
    assert moved.timestamp_unix_ms == world.clock.unix_ms()
    stored = world.broker.read(world.partition(topic), 0, bytes_max=1 << 20)
    assert stored is not None
    assert parse_batch_header(stored[0]).attributes & 0x08


async def test_what_is_due_since_its_batch_was_stamped_has_no_time_before_its_own(
    world: World,
) -> None:
    topic = await world.topic(message_timestamp_type="LogAppendTime")
    due_unix_ms = world.clock.unix_ms() + 2
    write = world.broker.prepare(
        world.partition(topic), encode_batch([record(world, b"x", after_ms=2)])
    )
    assert isinstance(write, Write)
    assert isinstance(world.clock, ManualClock)
    world.clock.advance(3)

    later = split_batch([world.sharded], write)
    assert later.is_split
    assert await outcome(lambda on_done: world.broker.append([later], on_done)) is None
    await world.settled()

    [moved] = world.records(topic)
    assert moved.timestamp_unix_ms >= due_unix_ms


async def test_a_refused_append_leaves_nothing_behind(world: World) -> None:
    topic = await world.topic()
    batch = encode_batch([record(world, b"x", after_ms=LATER_MS)])
    write = world.broker.prepare(world.partition(topic), batch)
    assert isinstance(write, Write)

    world.disk_is_full = True
    with pytest.raises(StorageFull):
        world.broker.append([write], lambda _: None)

    assert (world.delays.total, world.delays._counts.pending_count) == (0, 0)


def spread(world: World, *records: tuple[int, int | None]) -> bytearray:
    """A batch whose records have any timestamps, which its header says nothing of."""
    now_unix_ms = world.clock.unix_ms()
    batch = encode_batch(
        [
            (timestamp, None, b"v", record(world, b"", after_ms=after_ms)[3])
            for timestamp, after_ms in records
        ]
    )
    return patched(batch, 35, ">q", now_unix_ms)


async def test_timestamps_that_no_batch_can_hold_do_not_stop_what_is_due(world: World) -> None:
    """Each for itself is a timestamp, but they are more than 64 bits apart."""
    topic = await world.topic()
    for timestamp in (-(1 << 62) - 5, (1 << 63) - 1):
        await produce(world, topic, spread(world, (timestamp, LATER_MS)))
    await world.put(topic, LATER_MS, b"other")
    assert isinstance(world.clock, ManualClock)
    world.clock.advance(LATER_MS)

    await world.settled()

    assert [(one.timestamp_unix_ms, one.value) for one in world.records(topic)] == [
        (-(1 << 62) - 5, b"v"),
        ((1 << 63) - 1, b"v"),
        (world.clock.unix_ms() - LATER_MS, b"other"),
    ]


@pytest.mark.parametrize(
    "records",
    [
        [(0, None), ((1 << 63) - 1, None), (-(1 << 63) + 1, None), (0, LATER_MS)],
        [((1 << 62), LATER_MS), ((1 << 62) + (1 << 61), LATER_MS)],
    ],
)
async def test_a_batch_that_is_refused_counts_for_nothing(
    world: World, records: list[tuple[int, int | None]]
) -> None:
    topic = await world.topic()
    batch = spread(world, *records)
    batch = patched(batch, 27, ">q", (1 << 62) + (1 << 61))  # deltas lead beyond 64 bits

    with pytest.raises(InvalidTimestamp):
        split_of(world, topic, batch)

    assert world.delays._counts.pending_count == 0


def split_of(world: World, topic: Topic, batch: bytearray) -> Split | None:
    write = Write(world.partition(topic), batch, parse_batch_header(batch))
    return split(write, world.clock.unix_ms())


async def test_headers_that_end_too_early_are_refused(world: World) -> None:
    topic = await world.topic()
    batch = encode_batch(
        [record(world, b"v", after_ms=LATER_MS, other=[("deliver-at", b"1" * 13)])]
    )
    at = batch.index(b"\x04\x14deliver-at")
    batch[at] = 6 * 2  # of which four are not there
    batch += b""
    with pytest.raises(CorruptBatch):
        split_of(world, topic, batch)
