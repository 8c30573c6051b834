"""Batches that hold fewer records than they take offsets: each message behind its own offset."""

from functools import partial
from pathlib import Path

import pytest

from features.compaction import Codec
from features.compaction.rebuilding import rebuild, without_records
from features.compaction.record_slices import scan_records
from features.queue.model import Order, Result
from gateway.model import HEADER_BYTES, Record, parse_batch_header, stamp
from gateway.partition import Partition, Write
from gateway.queues.manager import Queue
from gateway.queues.message_cache import Body, MessageCache, Unreadable
from gateway.records.codec import encode_batch
from gateway.records.compression import compress, decompress
from tests.gateway.kernel_in_memory import outcome
from tests.gateway.queues.queue_node import World, is_fed, running, settle, take, values

pytestmark = pytest.mark.timeout(60)  # a search that finds nothing must end, too

NOW_UNIX_MS = 1_700_000_000_000
VALUES = (b"a", b"b", b"c", b"d", b"e")
COUNT = len(VALUES)
_CODEC = Codec(partial(decompress, bytes_max=1 << 20), compress)
_ORDERS = ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [0, 2, 4], [2], [3, 0])
_MISSING = pytest.mark.parametrize("missing", [{0}, {2}, {4}, {0, 2, 4}, {0, 1, 2, 3, 4}])


def with_holes(missing: set[int]) -> bytearray:
    """A batch of ``VALUES``, as it is when the records of some offsets are not in it."""
    batch = encode_batch([(NOW_UNIX_MS, b"key", value, ()) for value in VALUES])
    header = parse_batch_header(batch)
    data = bytes(batch[HEADER_BYTES:])
    kept = [one for at, one in enumerate(scan_records(data, header)) if at not in missing]
    if not kept:
        return bytearray(without_records(header))
    return bytearray(rebuild(header, data, kept, _CODEC, horizon_unix_ms=None))


async def append(world: World, partition: Partition, batch: bytearray) -> Write:
    write = Write(partition, batch, parse_batch_header(batch))
    assert await outcome(lambda on_done: world.broker.append([write], on_done)) is None
    return write


def seen(bodies: list[Body] | None) -> list[bytes | Unreadable | None]:
    assert bodies is not None
    return [one.value if isinstance(one, Record) else one for one in bodies]


def wanted(order: list[int], missing: set[int]) -> list[object]:
    return [Unreadable.GONE if at in missing else VALUES[at] for at in order]


@pytest.mark.parametrize("is_kept", [True, False], ids=["as it was written", "from the log"])
@_MISSING
async def test_each_offset_has_its_own_message_or_none(
    tmp_path: Path,
    missing: set[int],
    is_kept: bool,  # noqa: FBT001
) -> None:
    async with running(tmp_path) as world:
        topic = await world.topic("work")
        partition = world.broker.partition(topic, 0)
        bodies = MessageCache(world.broker, bytes_max=1 << 20)
        for _ in range(2):  # the second does not begin at 0
            write = await append(world, partition, with_holes(missing))
            if is_kept:
                bodies.keep(partition, write)
            base = write.base_offset

        for order in _ORDERS:
            found = bodies.find(partition, [base + at for at in order])
            assert seen(found) == wanted(order, missing)
            read = await bodies.read(partition, [base + at for at in order])
            assert seen(read) == wanted(order, missing)
        assert partition.log_end_offset == partition.high_watermark == 2 * COUNT


async def test_neighbours_of_a_batch_with_holes_are_found_with_it(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        partition = world.broker.partition(await world.topic("work"), 0)
        bodies = MessageCache(world.broker, bytes_max=1 << 20)
        for missing in (set(), {4}, set()):
            bodies.keep(partition, await append(world, partition, with_holes(missing)))
        found = bodies.find(partition, list(range(3, 12)))
        assert seen(found) == [b"d", b"e", b"a", b"b", b"c", b"d", Unreadable.GONE, b"a", b"b"]


async def test_a_header_that_promises_more_records_ends_no_search(tmp_path: Path) -> None:
    """The node must not stand still whatever is wrong with a batch."""
    async with running(tmp_path) as world:
        partition = world.broker.partition(await world.topic("work"), 0)
        bodies = MessageCache(world.broker, bytes_max=1 << 20)
        write = await append(world, partition, with_holes({0, 4}))
        write.header = write.header._replace(record_count=COUNT)
        bodies.keep(partition, write)
        for order in _ORDERS:
            assert seen(bodies.find(partition, order)) == wanted(order, {0, 4})


@pytest.mark.parametrize("order", list(Order))
@_MISSING
async def test_receivers_get_what_is_there_in_order(
    tmp_path: Path, missing: set[int], order: Order
) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(order=order)
        for holes in (missing, set[int]()):
            await append(world, queue.lanes[0].partition, with_holes(holes))
        await world.until(lambda: is_fed(queue))

        got = await all_of(queue)

        here = [value for at, value in enumerate(VALUES) if at not in missing]
        assert got == here + list(VALUES)
        assert queue.counts() == (0, 0, 0)


async def all_of(queue: Queue) -> list[bytes | None]:
    """Receive and delete until nothing comes."""
    found: list[bytes | None] = []
    while got := await take(queue, 3):
        assert set(await settle(queue, got)) == {Result.DONE}
        found += values(got)
    return found


def test_batches_with_holes_are_made_as_these_tests_mean() -> None:
    batch = with_holes({0, 4})
    stamp(batch, 7, 0)
    header = parse_batch_header(batch)
    assert (header.record_count, header.last_offset) == (3, 11)
