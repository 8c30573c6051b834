"""Guarantees of the S3 storage alone: one object for all partitions, fencing, no disk."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.clock import SystemClock
from gateway.errors import StorageFull, StorageUnavailable
from gateway.storage import Bounds
from gateway.testing.storage import (
    Host,
    append,
    delete,
    make_batch,
    make_entry,
    read_all,
    truncate,
)
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index
from storage_adapters.s3.scanning import SCANS_AT_ONCE
from tests.support.s3_servers import S3Server


class NodeBucket:
    """A bucket's prefix and a database; nodes come and go."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.prefix = f"{uuid4().hex}/"
        self.database = folder / "metadata.sqlite"
        self.hosts: list[Host] = []

    async def open(self, **more: object) -> S3Storage:
        """Start a node on an empty folder."""
        config = S3Config(
            bucket=self.server.bucket,
            prefix=self.prefix,
            endpoint_url=self.server.endpoint_url,
            **{"flush_interval_ms": 1, **more},
        )
        data_dir = self.folder / f"node-{len(self.hosts)}"
        host = Host(f"sqlite:///{self.database}")
        self.hosts.append(host)
        storage = S3Storage(config, data_dir=data_dir, clock=SystemClock())
        await storage.open(host)
        return storage

    def objects(self) -> list[str]:
        """Return the keys of all objects in the bucket."""
        with closing(self.server.client()) as client:
            found = client.list_objects_v2(
                Bucket=self.server.bucket, Prefix=f"{self.prefix}objects/"
            )
        return [row["Key"] for row in found.get("Contents", [])]


@pytest.fixture
def place(server: S3Server, tmp_path: Path) -> NodeBucket:
    return NodeBucket(server, tmp_path)


def _enqueue(storage: S3Storage, *targets: tuple[int, int]) -> "asyncio.Future[object]":
    done = asyncio.get_running_loop().create_future()
    storage.enqueue([make_entry(target) for target in targets], done.set_result)
    return done


async def test_appends_of_an_interval_are_one_object(place: NodeBucket) -> None:
    storage = await place.open(flush_interval_ms=200)

    waiting = [_enqueue(storage, (number, 0)) for number in range(1, 101)]
    await asyncio.gather(*waiting)

    assert len(place.objects()) == 1
    assert await read_all(storage, 77) == [make_batch(0)]
    await storage.close()


async def test_a_full_object_does_not_wait_for_the_interval(place: NodeBucket) -> None:
    storage = await place.open(flush_interval_ms=60_000, object_bytes=1 << 20)

    await append(storage, make_entry((1, 0), size_bytes=1 << 20))

    assert len(place.objects()) == 1
    await storage.close()


async def test_another_machine_finds_everything(place: NodeBucket) -> None:
    storage = await place.open()
    await append(storage, make_entry((1, 0), 3), make_entry([(2, 0), (3, 0)], 2))
    await append(storage, make_entry((1, 3)), make_entry((4, 0)))
    await truncate(storage, 1, 3)
    await delete(storage, 4)
    await storage.close()
    shutil.rmtree(place.folder / "node-0", ignore_errors=True)

    other = await place.open()

    assert other.incarnation == 2
    assert other.data_uuid == storage.data_uuid
    assert not other.is_empty
    assert (other.bounds(1), other.bounds(4)) == (Bounds(3, 4), Bounds(0, 0))
    assert await read_all(other, 1, start=3) == [make_batch(3)]
    assert await read_all(other, 3) == [make_batch(0, 2)]
    assert other.size_bytes(1) == 100
    await other.close()


async def test_who_was_taken_over_acknowledges_nothing_and_stops(place: NodeBucket) -> None:
    older = await place.open()
    await append(older, make_entry((1, 0)))

    newer = await place.open()
    answer = await _enqueue(older, (1, 1))

    assert isinstance(answer, StorageUnavailable)
    assert [type(fault).__name__ for fault in place.hosts[0].faults] == ["Fenced"]
    with pytest.raises(StorageUnavailable):
        _enqueue(older, (1, 2))
    await append(newer, make_entry((1, 1), epoch=2))
    assert await read_all(newer, 1) == [make_batch(0), make_batch(1, epoch=2)]
    await older.close()
    await newer.close()


async def test_a_locked_database_delays_and_loses_nothing(place: NodeBucket) -> None:
    storage = await place.open(refuse_after_ms=100)
    with closing(sqlite3.connect(place.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        first = _enqueue(storage, (1, 0))

        await _until(lambda: storage._uploader.waits_ms > 100)

        with pytest.raises(StorageUnavailable, match=r"storage\.refuse_after_ms"):
            _enqueue(storage, (1, 1))
        assert not first.done()
        other.execute("ROLLBACK")
    assert await first is None
    await append(storage, make_entry((1, 1)))
    assert len(await read_all(storage, 1)) == 2
    await storage.close()


async def test_merging_gives_way_when_half_of_the_uploads_are_busy(place: NodeBucket) -> None:
    storage = await place.open(uploads_max=4)
    with closing(sqlite3.connect(place.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        gives_way = storage._merger.pace._is_uploading
        first = _enqueue(storage, (1, 0))
        await _until(lambda: storage._uploader.waiting_count == 1)
        assert not gives_way()

        second = _enqueue(storage, (1, 1))

        await _until(lambda: storage._uploader.waiting_count == 2)
        assert gives_way()
        other.execute("ROLLBACK")
    assert list(await asyncio.gather(first, second)) == [None, None]
    assert not gives_way()
    await storage.close()


async def test_what_was_written_last_is_merged_without_reading_it(place: NodeBucket) -> None:
    storage = await place.open(merge_objects_min=4)
    for offset in range(4):
        await append(storage, make_entry((1, offset)))

    storage.release_scans_before(storage.next_sequence)
    await _until(lambda: storage._merger.rounds == 1)

    assert "get" not in storage._bucket.statistics.requests
    assert len(await read_all(storage, 1)) == 4
    await storage.close()


async def test_what_the_database_does_not_take_at_a_stop_is_not_acknowledged(
    place: NodeBucket,
) -> None:
    storage = await place.open(close_ms_max=100)
    with closing(sqlite3.connect(place.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        answer = _enqueue(storage, (1, 0))
        await storage.close()
        assert isinstance(await answer, StorageUnavailable)

    again = await place.open()
    assert again.bounds(1) == Bounds(0, 0)
    await again.close()


async def test_too_much_in_memory_is_refused_and_acknowledgements_are_not(
    place: NodeBucket,
) -> None:
    storage = await place.open(
        flush_interval_ms=60_000, queued_bytes_max=1 << 20, object_bytes=8 << 20
    )
    first = asyncio.get_running_loop().create_future()
    storage.enqueue([make_entry((1, 0), size_bytes=900_000)], first.set_result)

    with pytest.raises(StorageFull, match=r"storage\.queued_bytes_max"):
        storage.enqueue([make_entry((1, 1), size_bytes=900_000)], first.set_result)
    storage.enqueue([make_entry((2, 0), size_bytes=900_000)], lambda _: None, reserved=True)

    assert storage.bounds(1) == Bounds(0, 1)
    await storage.close()
    assert first.result() is None


async def test_a_new_database_beside_old_objects_is_refused(place: NodeBucket) -> None:
    storage = await place.open()
    await append(storage, make_entry((1, 0)))
    await storage.close()
    place.database.unlink()

    with pytest.raises(StorageUnavailable, match="recover-metadata"):
        await place.open()


async def test_the_database_of_another_bucket_is_refused(place: NodeBucket) -> None:
    storage = await place.open()
    await storage.close()
    place.prefix = "elsewhere/"

    with pytest.raises(StorageUnavailable, match="prefix"):
        await place.open()


async def test_numbers_of_a_node_that_died_are_not_used_again(place: NodeBucket) -> None:
    storage = await place.open()
    await append(storage, make_entry((1, 0)))
    await storage.close()

    other = await place.open()
    await append(other, make_entry((1, 1)))
    await other.close()

    index = Index(f"sqlite:///{place.database}", clock=SystemClock())
    index.open()
    numbers = [stored.number for stored, _ in index.load().objects]
    index.close()
    assert len(set(numbers)) == 2
    assert len(place.objects()) == 2


async def test_a_scan_fetches_few_objects_ahead_of_its_reader(place: NodeBucket) -> None:
    storage = await place.open(object_bytes=1 << 16)
    for offset in range(30):
        await append(storage, make_entry((1, offset), size_bytes=1 << 16))
    before = storage._bucket.statistics.requests.get("get", 0)

    headers = storage.scan(0)
    first = next(headers)
    assert len(place.objects()) == 30  # it takes a while
    headers.close()  # type: ignore[attr-defined]

    fetched = storage._bucket.statistics.requests["get"] - before
    assert (first.targets[0].base_offset, fetched) == (0, SCANS_AT_ONCE)
    assert [header.targets[0].base_offset for header in storage.scan(0)] == list(range(30))
    await storage.close()


async def test_a_start_that_passes_what_is_on_its_way_counts_it_as_gone(
    place: NodeBucket,
) -> None:
    storage = await place.open(flush_interval_ms=200)
    waiting = [_enqueue(storage, (1, 0), (1, 1), (2, 0), (2, 1))]

    await truncate(storage, 1, 1)
    await truncate(storage, 2, 2)
    await asyncio.gather(*waiting)

    assert (storage.size_bytes(1), storage.size_bytes(2)) == (100, 0)
    await storage.close()
    again = await place.open()
    assert (again.size_bytes(1), again.size_bytes(2)) == (100, 0)
    assert (again.bounds(1), again.bounds(2)) == (Bounds(1, 2), Bounds(2, 2))
    await again.close()


async def test_a_partition_that_was_forgotten_does_not_come_back(place: NodeBucket) -> None:
    storage = await place.open(flush_interval_ms=1_000)
    waiting = _enqueue(storage, (1, 0))
    await delete(storage, 1)
    # What the sweeper does some hours after: the bucket was away for so long.
    await storage._committer.run(lambda index: index.forget_bounds([1]))
    del storage._catalog.partitions[1]

    assert await waiting is None

    assert (storage.bounds(1), storage.size_bytes(1)) == (Bounds(0, 0), 0)
    await storage.close()
    again = await place.open()
    assert (again.bounds(1), again.size_bytes(1)) == (Bounds(0, 0), 0)
    await again.close()


async def _until(is_so: Callable[[], bool]) -> None:
    async def reach() -> None:
        while not is_so():  # noqa: ASYNC110 - there is no event of it
            await asyncio.sleep(0)

    await asyncio.wait_for(reach(), 60)
