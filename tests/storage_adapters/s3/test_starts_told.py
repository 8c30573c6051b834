"""Start offsets reach the bucket soon, so that deleted records do not return with a lost index.

No test appends to the partition itself, because its objects would contain the start offset.
"""

import asyncio

import pytest

from gateway.clock import ManualClock, SystemClock
from gateway.testing.storage import append, delete, make_entry, truncate
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.index import Index
from storage_adapters.s3.log_starts import TOLD_MAX, UnwrittenStarts
from storage_adapters.s3.opening import catalog_of
from storage_adapters.s3.recovery import restore_index, survey_bucket
from storage_adapters.s3.state import Catalog
from tests.storage_adapters.s3.s3_nodes import NodeBucket, place

__all__ = ["place"]  # a fixture


def _recovered(place: NodeBucket) -> Catalog:
    """Return what a node knows that starts with an index made of the bucket."""
    config, clock = place.config(), SystemClock()
    bucket = Bucket(config, clock)
    index = Index(f"{place.url}.new", clock=clock)
    index.open()
    restore_index(config, bucket, index, survey_bucket(config, bucket))
    try:
        return catalog_of(index.load())
    finally:
        index.close()
        bucket.close()


async def _filled(place: NodeBucket) -> S3Storage:
    storage = await place.open()
    await append(storage, make_entry((1, 0)), make_entry((2, 0)), make_entry((3, 0)))
    await append(storage, make_entry((1, 1)), make_entry((2, 1)), make_entry((3, 1)))
    return storage


async def _cut_off(storage: S3Storage) -> None:
    """End a node as a crash does: what it meant to tell is forgotten."""
    storage._starts.untold.take()
    await storage.close()


def _check(catalog: Catalog) -> None:
    assert catalog.partition(1).start == 1
    assert catalog.partition(2).is_deleted
    assert (catalog.partition(3).start, catalog.partition(3).end) == (0, 2)


async def test_a_node_tells_at_its_start_what_the_one_before_may_not_have_told(
    place: NodeBucket,
) -> None:
    storage = await _filled(place)
    await truncate(storage, 1, 1)
    await delete(storage, 2)
    await _cut_off(storage)

    storage = await place.open()
    await append(storage, make_entry((9, 0)))
    await storage.close()

    _check(_recovered(place))


@pytest.mark.parametrize("is_merged", [False, True])
async def test_a_node_without_appends_tells_at_the_next_sweep(
    place: NodeBucket, *, is_merged: bool
) -> None:
    storage = await _filled(place)
    if is_merged:
        await storage._merger._merge(sorted(storage._catalog.objects.values()))
    await truncate(storage, 1, 1)
    await delete(storage, 2)

    assert await storage._sweeper.run_due()

    _check(_recovered(place))
    count = len(storage._catalog.objects)
    assert await storage._sweeper.run_due()
    assert len(storage._catalog.objects) == count  # once is enough
    await storage.close()


async def test_what_could_not_be_told_is_told_later(place: NodeBucket) -> None:
    storage = await place.open(clock=ManualClock(unix_ms=1_000_000))
    await append(storage, make_entry((1, 0)), make_entry((2, 0)), make_entry((3, 0)))
    await append(storage, make_entry((1, 1)), make_entry((2, 1)), make_entry((3, 1)))
    await truncate(storage, 1, 1)
    await delete(storage, 2)
    place_of = storage._merger.place

    async def mistake() -> None:
        raise ValueError("a mistake of ours")

    storage._merger.place = mistake  # type: ignore[assignment, method-assign]
    await storage._sweeper.run_due()
    storage._merger.place = place_of  # type: ignore[method-assign]
    assert storage._merger.failures == 1

    storage._clock.advance(1_000)  # type: ignore[attr-defined]
    await storage._sweeper.run_due()

    _check(_recovered(place))
    await storage.close()


def test_no_object_is_to_tell_of_all_partitions_at_once() -> None:
    catalog = Catalog()
    for partition_id in range(1, 2 * TOLD_MAX + 2):
        catalog.partition(partition_id).start = 5
    catalog.partition(100_000)

    untold = UnwrittenStarts(catalog)

    assert [len(untold.take()) for _ in range(4)] == [TOLD_MAX, TOLD_MAX, 1, 0]


async def test_a_start_that_moves_while_it_is_told_is_told_again() -> None:
    untold = UnwrittenStarts(Catalog())
    untold.add(1)

    with untold.taken() as taken:
        untold.add(1)
        await asyncio.sleep(0)

    assert (taken, untold.take()) == ({1}, {1})
