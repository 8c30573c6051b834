"""Batches that take the loop too long: looked into in a thread, each message as it should be."""

import asyncio
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from features.queue.model import Order
from gateway.errors import CorruptBatch
from gateway.model import HEADER_BYTES, Buffer, Record, parse_batch_header
from gateway.partition import Write
from gateway.queues import batch_runs, cached_batch
from gateway.queues.manager import Queue
from gateway.queues.model import Delivery
from gateway.records.codec import decode_batch, encode_batch
from gateway.records.compression import GZIP, compress
from gateway.records.decoding_cost import LOOP_WORK_MAX, decoding_cost_of
from tests.gateway.kernel_in_memory import outcome
from tests.gateway.queues.queue_node import World, is_fed, running, settle, take, values
from tests.support.batches import patched

NOW_UNIX_MS = 1_700_000_000_000
MANY = LOOP_WORK_MAX + 1
ORDERS = pytest.mark.parametrize("order", list(Order))


def compressed(values: Sequence[bytes], keys: int = 1) -> bytearray:
    """A producer's batch; records in a row have one of some keys."""
    records = [(NOW_UNIX_MS, b"%d" % (n % keys), one, ()) for n, one in enumerate(values)]
    batch = encode_batch(records)
    packed = batch[:HEADER_BYTES] + compress(GZIP, bytes(batch[HEADER_BYTES:]))
    struct.pack_into(">i", packed, 8, len(packed) - 12)
    return patched(packed, 21, ">h", GZIP)


async def append(world: World, queue: Queue, *batches: bytearray) -> None:
    """Append as the Kafka adapter does: what it has is a view of the request."""
    partition = queue.lanes[0].partition
    writes = [Write(partition, memoryview(one), parse_batch_header(one)) for one in batches]
    assert await outcome(lambda on_done: world.broker.append(writes, on_done)) is None
    await fed(world, queue)


async def fed(world: World, queue: Queue) -> None:
    """Wait until the queue's only lane knows all that it wants to, threads included."""
    feeder = queue.lanes[0]._feeder
    await world.until(lambda: is_fed(queue) or feeder._beside is not None)
    while feeder._beside is not None:
        await asyncio.wait([feeder._beside])
        await world.until(lambda: is_fed(queue) or feeder._beside is not None)


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the count of records of each batch that the loop's thread looked at."""
    found: list[int] = []
    loop_thread = threading.current_thread()

    def note(data: Buffer) -> None:
        if threading.current_thread() is loop_thread:
            found.append(parse_batch_header(data).record_count)

    keyed = batch_runs._keys

    def noted(data: Buffer) -> list[Record]:
        note(data)
        return decode_batch(data)

    def _keys(batch: Buffer, header: object) -> object:
        note(batch)
        return keyed(batch, header)  # type: ignore[arg-type]

    monkeypatch.setattr(cached_batch, "decode_batch", noted)
    monkeypatch.setattr(batch_runs, "_keys", _keys)
    return found


@ORDERS
async def test_large_batch_is_read_beside_the_loop(
    tmp_path: Path, order: Order, on_loop: list[int]
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order=order)
        large = compressed([b"%d" % n for n in range(MANY)])
        await append(world, queue, compressed([b"a"]), large, compressed([b"z"]))

        got: list[Delivery] = []
        for _ in range(3):
            taken = await take(queue, 4, wait_ms=20_000)
            await settle(queue, taken)
            got += taken

        assert values(got) == [b"a", *[b"%d" % n for n in range(11)]]
        assert [one.record.offset for one in got] == list(range(12))
        assert queue.counts().ready == MANY + 2 - 12
        assert max(on_loop, default=0) <= 1


@ORDERS
@pytest.mark.heavy
async def test_large_batch_of_a_log_that_was_there_before_the_queue(
    tmp_path: Path, order: Order, on_loop: list[int]
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order=order)
        values_of_it = [b"%d" % n for n in range(MANY)]
        await append(world, queue, compressed(values_of_it), compressed([b"z"]))
        await world.restart()
        queue = world.find()
        await fed(world, queue)

        several = await asyncio.gather(*[take(queue, 3) for _ in range(3)])

        got = sorted(one.record.offset for taken in several for one in taken)
        # In order of keys the first has messages of the only key, and the others wait for them.
        assert got == list(range(3 if order is Order.KEY else 9))
        assert all(b"%d" % one.record.offset == one.record.value for t in several for one in t)
        assert max(on_loop, default=0) <= 1


@pytest.mark.heavy
async def test_many_batches_of_one_read_are_one_work(
    tmp_path: Path, on_loop: list[int]
) -> None:
    """None of them is large, all of them are."""
    async with running(tmp_path) as world:
        queue = await world.queue(order=Order.FAIR)
        count = LOOP_WORK_MAX // 4
        batches = [compressed([b""] * count, keys=3) for _ in range(8)]
        await append(world, queue, *batches)
        assert queue.counts().ready == 8 * count
        assert sum(on_loop) <= LOOP_WORK_MAX
        assert len(await take(queue, 10)) == 10


async def test_large_batch_that_is_corrupt_holds_up_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order=Order.FAIR)
        bad = compressed([b"x"] * MANY)
        bad[HEADER_BYTES + 20 :] = bytes(len(bad) - HEADER_BYTES - 20)
        with pytest.raises(CorruptBatch):
            decode_batch(bad)
        await append(world, queue, bad, compressed([b"after"]))
        assert queue.counts().ready == MANY + 1


@pytest.mark.heavy
async def test_lane_that_knows_enough_is_fed_on_when_it_wants_more(tmp_path: Path) -> None:
    async with running(tmp_path, lookahead=1_000) as world:
        queue = await world.queue(order=Order.FAIR)
        large = compressed([b"v"] * MANY, keys=MANY)  # each a stretch of its own
        await append(world, queue, large, large[:], compressed([b"z"]))
        lane = queue.lanes[0].lane
        assert lane.fed_end == MANY, "the second is left to the log"
        await world.send(queue, b"live")
        assert lane.fed_end == MANY

        while lane.fed_end == MANY:
            got = await take(queue, 10_000, bytes_max=1 << 30)
            assert await settle(queue, got)
            await world.turn()
            await fed(world, queue)

        assert lane.fed_end == 2 * MANY


def test_work_counts_what_a_compressed_byte_may_become() -> None:
    header = parse_batch_header(compressed([b""] * 3))
    assert decoding_cost_of(header) == 3 + header.size_bytes
    assert decoding_cost_of(parse_batch_header(encode_batch([(0, None, bytes(99), ())]))) == 1
