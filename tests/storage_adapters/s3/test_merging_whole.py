"""The whole storage under random work, while it merges, compacts, deletes; then a lost index."""

import asyncio
import random
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.clock import SystemClock
from gateway.model import Buffer, parse_batch_header
from gateway.testing.storage import ALL, Host, append, make_batch, make_entry
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index
from storage_adapters.s3.recovery import restore_index, survey_bucket
from tests.support.s3_servers import S3Server

PARTITIONS = range(1, 7)


class Model:
    """Expected content: batches and start offset of each partition."""

    def __init__(self, seed: int, storage: S3Storage) -> None:
        self.random = random.Random(seed)
        self.storage = storage
        self.batches: dict[int, list[bytes]] = {i: [] for i in PARTITIONS}
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.starts = dict.fromkeys(PARTITIONS, 0)
        self.deleted: set[int] = set()

    async def step(self) -> None:
        """Do something."""
        work = [self.append, self.append, self.append, self.read, self.read, self.truncate]
        choice = self.random.random()
        if choice < 0.01:
            await self.delete()
        elif choice < 0.05:
            await self.rewrite()
        else:
            await self.random.choice(work)()

    def _some(self) -> list[int]:
        alive = [i for i in PARTITIONS if i not in self.deleted]
        return sorted(self.random.sample(alive, min(len(alive), self.random.randint(1, 3))))

    async def append(self) -> None:
        """Append some batches at once."""
        entries = []
        for _ in range(self.random.randint(1, 3)):
            count, size = self.random.randint(1, 4), self.random.choice([90, 300, 3_000])
            ids = self._some()
            if not ids:
                return
            targets = [(i, self.ends[i]) for i in ids]
            entries.append(make_entry(targets, count, size_bytes=size))
            batch = make_batch(targets[0][1], count, size_bytes=size)
            for i, base_offset in targets:
                self.batches[i].append(base_offset.to_bytes(8) + batch[8:])
                self.ends[i] += count
        await append(self.storage, *entries)

    async def read(self) -> None:
        """Read something, and compare."""
        for i in self._some():
            start = self.random.randint(self.starts[i], self.ends[i])
            expected = self.expected(i, start)
            found = await self.storage.read(i, start, ALL, bytes_max=5_000)
            assert [bytes(batch) for batch in found] == expected[: len(found)]
            assert bool(found) == bool(expected)

    async def truncate(self) -> None:
        """Move a log start, sometimes to the end."""
        for i in self._some()[:1]:
            start = self.random.randint(self.starts[i], self.ends[i])
            done = asyncio.get_running_loop().create_future()
            self.starts[i] = start
            self.storage.truncate_before(i, start, done.set_result)
            assert await done is None

    async def delete(self) -> None:
        """Delete a partition."""
        for i in self._some()[:1]:
            done = asyncio.get_running_loop().create_future()
            self.deleted.add(i)
            self.storage.delete([i], done.set_result)
            assert await done is None

    async def rewrite(self) -> None:
        """Compact: batches whose base offset is a multiple of three go."""
        for i in self._some()[:1]:
            start = self.starts[i]
            gone: set[int] = set()

            def keep(batch: Buffer, gone: set[int] = gone) -> Buffer | None:
                offset = parse_batch_header(batch).base_offset
                if offset % 3:
                    return batch
                gone.add(offset)
                return None

            await self.storage.rewrite(i, self.ends[i], keep)
            assert start == self.starts[i]
            self.batches[i] = [b for b in self.batches[i] if _base(b) not in gone]

    def expected(self, partition_id: int, start: int) -> list[bytes]:
        """Return a partition's batches from an offset on."""
        return [b for b in self.batches[partition_id] if _end(b) > start]

    async def check(self, storage: S3Storage) -> None:
        """Compare everything."""
        for i in PARTITIONS:
            if i in self.deleted:
                assert await storage.read(i, 0, ALL, bytes_max=1 << 30) == []
                continue
            expected = self.expected(i, self.starts[i])
            assert await _read_all(storage, i) == expected
            assert storage.bounds(i) == (self.starts[i], self.ends[i])
            assert storage.size_bytes(i) == sum(map(len, expected))


async def _read_all(storage: S3Storage, partition_id: int) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while batches := await storage.read(partition_id, at, ALL, bytes_max=1 << 30):
        found += map(bytes, batches)
        at = _end(found[-1])
    return found


def _base(batch: bytes) -> int:
    return parse_batch_header(batch).base_offset


def _end(batch: bytes) -> int:
    return parse_batch_header(batch).last_offset + 1


@pytest.mark.parametrize("seed", [1, 6])
async def test_nothing_is_lost_and_nothing_comes_back(
    server: S3Server, tmp_path: Path, seed: int
) -> None:
    config = S3Config(
        bucket=server.bucket,
        prefix=f"{uuid4().hex}/",
        endpoint_url=server.endpoint_url,
        flush_interval_ms=0,
        merge_objects_min=4,
        merge_after_ms=20,
        partition_object_bytes_min=6_000,
        sweep_interval_ms=20,
        delete_after_ms=0,  # Readers find that objects are gone, and plan again.
        disk_cache_bytes=0,
        tail_cache_bytes=1 << 20,
        memory_cache_bytes=1 << 20,
    )
    host = Host(f"sqlite:///{tmp_path}/metadata.sqlite")
    storage = S3Storage(config, data_dir=tmp_path, clock=SystemClock())
    await storage.open(host)
    model = Model(seed, storage)
    for _ in range(150):
        await model.step()
        storage.release_scans_before(storage.next_sequence)
    await model.check(storage)
    await append(storage, make_entry((99, 0)))  # Tells of what moved last.
    assert storage._merger.rounds > 5
    assert storage._merger.failures == storage._sweeper.failures == 0
    await storage.close()

    storage = S3Storage(config, data_dir=tmp_path, clock=SystemClock())
    await storage.open(host)
    await model.check(storage)
    await storage.close()

    bucket = Bucket(config, SystemClock())
    index = Index(f"sqlite:///{tmp_path}/again.sqlite", clock=SystemClock())
    index.open()
    survey = survey_bucket(config, bucket)
    assert (survey.damaged, survey.decision.missing) == ([], [])
    restore_index(config, bucket, index, survey)
    index.close()
    bucket.close()
    storage = S3Storage(config, data_dir=tmp_path, clock=SystemClock())
    await storage.open(Host(f"sqlite:///{tmp_path}/again.sqlite"))
    await model.check(storage)
    await storage.close()
