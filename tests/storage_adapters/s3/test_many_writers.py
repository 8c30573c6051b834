"""Nodes that share a bucket: each appends to its own partitions, and all read everything."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.clock import SystemClock
from gateway.errors import StorageUnavailable
from gateway.storage import Bounds
from gateway.testing.storage import Host, append, delete, make_entry, offsets_of, read_all
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.index import Index
from storage_adapters.s3.opening import catalog_of
from storage_adapters.s3.recovery import restore_index, survey_bucket
from storage_adapters.s3.state import KIND_LOG, KIND_SETTLED, Catalog
from tests.storage_adapters.s3.s3_nodes import NodeBucket, place

__all__ = ["place"]

Joins = Callable[..., Awaitable[S3Storage]]


@pytest.fixture
async def join(place: NodeBucket, tmp_path: Path) -> AsyncIterator[Joins]:
    """Start a node beside others, or with ``is_shared=False`` in place of them."""
    opened: list[S3Storage] = []

    async def start(node_id: int, *, is_shared: bool = True, **settings: object) -> S3Storage:
        storage = S3Storage(
            place.config(**settings),
            data_dir=tmp_path,
            clock=SystemClock(),
            is_shared=is_shared,
        )
        host = Host(place.url)
        host.node_id = node_id
        await storage.open(host)
        opened.append(storage)
        return storage

    yield start
    for storage in opened:
        await storage.close()


def recovered(place: NodeBucket, folder: Path) -> Catalog:
    """Return what a recovery makes of the bucket alone."""
    index = Index(f"sqlite:///{folder}/recovered.sqlite", clock=SystemClock())
    index.open()
    try:
        with closing(Bucket(place.config(), SystemClock())) as bucket:
            survey = survey_bucket(place.config(), bucket)
            restore_index(place.config(), bucket, index, survey)
        assert (survey.damaged, survey.decision.missing) == ([], [])
        return catalog_of(index.load())
    finally:
        index.close()


def stored(place: NodeBucket) -> Catalog:
    """Return what the database has."""
    index = Index(place.url, clock=SystemClock())
    index.open()
    try:
        return catalog_of(index.load())
    finally:
        index.close()


def extents(catalog: Catalog) -> dict[int, object]:
    return {
        state.partition_id: (state.start, state.end, state.extents)
        for state in catalog.partitions.values()
        if state.extents
    }


async def append_range(storage: S3Storage, partition_id: int, offsets: range) -> None:
    for offset in offsets:
        await append(storage, make_entry((partition_id, offset)))


async def offsets(storage: S3Storage, partition_id: int) -> list[int]:
    return offsets_of(await read_all(storage, partition_id))


async def merge(storage: S3Storage) -> None:
    storage.release_scans_before(storage.next_sequence)
    await storage._merger.run_due()


async def test_each_node_reads_what_the_other_has_appended(join: Joins) -> None:
    one, two = await join(1), await join(2)
    await append_range(one, 1, range(3))
    await append_range(two, 2, range(4))
    await append_range(one, 1, range(3, 5))

    await one.others.refresh()
    await two.others.refresh()

    for node in (one, two):
        assert [await offsets(node, 1), await offsets(node, 2)] == [
            [0, 1, 2, 3, 4],
            [0, 1, 2, 3],
        ]
        assert (node.bounds(1), node.bounds(2)) == (Bounds(0, 5), Bounds(0, 4))


async def test_a_partition_that_moves_goes_on_at_its_end(
    join: Joins, place: NodeBucket, tmp_path: Path
) -> None:
    one, two = await join(1), await join(2)
    await append_range(one, 1, range(2))

    for first, node in ((2, two), (4, one), (6, two)):
        await node.others.refresh()
        assert node.bounds(1) == Bounds(0, first)
        await append_range(node, 1, range(first, first + 2))

    await one.others.refresh()
    assert await offsets(one, 1) == list(range(8))
    for node in (one, two):
        scanned = [target.base_offset for found in node.scan(0) for target in found.targets]
        assert scanned == list(range(8))
    assert extents(recovered(place, tmp_path)) == extents(stored(place))


async def test_a_dead_nodes_partitions_go_on_and_what_it_never_committed_does_not_count(
    join: Joins, place: NodeBucket, tmp_path: Path
) -> None:
    dead, heir = await join(1), await join(2)
    await append_range(dead, 1, range(3))
    await append_range(heir, 2, range(1))

    await heir.others.fence(1)

    with pytest.raises(StorageUnavailable, match="has taken over"):
        await append(dead, make_entry((1, 3), size_bytes=200))  # its object is put in vain
    await heir.others.refresh()
    assert heir.bounds(1) == Bounds(0, 3)
    await append_range(heir, 1, range(3, 5))
    assert await offsets(heir, 1) == [0, 1, 2, 3, 4]
    assert extents(recovered(place, tmp_path)) == extents(stored(place))


async def test_a_node_that_starts_again_goes_on_with_its_log(
    join: Joins, place: NodeBucket, tmp_path: Path
) -> None:
    one, two = await join(1), await join(2)
    await append_range(two, 2, range(2))
    later = await join(2)

    with pytest.raises(StorageUnavailable, match="has taken over"):
        await append(two, make_entry((2, 2), size_bytes=200))
    await append_range(later, 2, range(2, 4))
    await append_range(one, 1, range(1))

    assert await offsets(later, 2) == [0, 1, 2, 3]
    assert extents(recovered(place, tmp_path)) == extents(stored(place))


async def test_merges_of_a_node_leave_the_others_objects_alone(
    join: Joins, place: NodeBucket, tmp_path: Path
) -> None:
    settings = {"merge_objects_min": 3, "delete_after_ms": 0}
    one, two = await join(1, **settings), await join(2, **settings)
    await append_range(one, 1, range(4))
    await two.others.refresh()
    await append_range(two, 1, range(4, 8))
    await one.others.refresh()
    await append_range(one, 3, range(4))

    await merge(two)  # it knows objects of the other that a round could take
    await merge(one)

    found = stored(place)
    kinds = sorted((one_.log, one_.kind) for one_ in found.objects.values())
    assert kinds == [(0, KIND_SETTLED), (1, KIND_SETTLED)]
    await one._sweeper.run_due()  # the objects that the other still knows are gone
    for node in (one, two):
        assert await offsets(node, 1) == list(range(8))
        assert await offsets(node, 3) == list(range(4))
    assert extents(recovered(place, tmp_path)) == extents(found)


async def test_headers_behind_merged_objects_alone_are_scanned(join: Joins) -> None:
    """Snapshots have the others: a merge waits until they do."""
    one, two = await join(1, merge_objects_min=2), await join(2, merge_objects_min=2)
    await append_range(one, 1, range(2))
    await two.others.refresh()
    await append_range(two, 1, range(2, 4))
    await merge(two)
    await one.others.refresh()
    await append_range(one, 1, range(4, 6))
    await two.others.refresh()

    scanned = [found.targets for found in two.scan(two.next_sequence)]

    assert [target.base_offset for targets in scanned for target in targets] == [4, 5]


async def test_a_deletion_reaches_the_other_nodes(join: Joins) -> None:
    one, two = await join(1), await join(2)
    await append_range(one, 1, range(2))
    await two.others.refresh()

    await delete(one, 1)
    await two.others.refresh()

    assert two.bounds(1) == Bounds(0, 0)
    assert await offsets(two, 1) == []


async def test_a_node_alone_takes_all_logs_over(
    join: Joins, place: NodeBucket, tmp_path: Path
) -> None:
    one, two = await join(1), await join(2)
    await append_range(one, 1, range(2))
    await append_range(two, 2, range(2))

    sole = await join(3, is_shared=False)

    for node, partition_id in ((one, 1), (two, 2)):
        with pytest.raises(StorageUnavailable, match="has taken over"):
            await append(node, make_entry((partition_id, 2), size_bytes=200))
    await append_range(sole, 1, range(2, 4))
    await append_range(sole, 2, range(2, 4))
    assert [await offsets(sole, 1), await offsets(sole, 2)] == [[0, 1, 2, 3]] * 2
    assert extents(recovered(place, tmp_path)) == extents(stored(place))


async def test_the_end_of_a_log_stays_until_the_log_goes_on(join: Joins) -> None:
    one, two = await join(1), await join(2)
    await append_range(one, 1, range(3))
    await two.others.fence(1)

    again = await join(3, merge_objects_min=2)  # the log that was left is its own
    await merge(again)

    ends = [
        found
        for found in again._catalog.objects.values()
        if found.kind == KIND_LOG and found.first_sequence == found.next_sequence
    ]
    assert len(ends) == 2
