"""Objects in a real bucket and what reads them, without what writes in a node."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from gateway.clock import SystemClock
from gateway.model import Buffer
from gateway.storage import Entry
from gateway.testing.storage import offsets_of
from storage_adapters.formats.object_index import pack_rows
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.caching import ObjectCache
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.objects import Appends, LogObject, ObjectHeader, Part, build_log_object
from storage_adapters.s3.reading import Reader
from storage_adapters.s3.rows import RowsCache
from storage_adapters.s3.state import KIND_LOG, Catalog, StoredObject, object_key
from tests.support.s3_servers import S3Server

ALL: Final = 1 << 30
KIB: Final = 1024


class HeldBucket(Bucket):
    """A real bucket whose GETs a test may hold back. ``gets``: (key, start, end) of each.

    ``spoilt``: of so many of the next answers, which byte arrives damaged.
    """

    def __init__(self, config: S3Config) -> None:
        super().__init__(config, SystemClock())
        self.gets: list[tuple[str, int, int]] = []
        self.open = threading.Event()
        self.open.set()
        self.spoilt: list[int] = []

    def get(self, key: str, start: int, end: int) -> bytes:
        self.gets.append((key, start, end))
        assert self.open.wait(60)
        data = bytearray(super().get(key, start, end))
        if self.spoilt:
            data[self.spoilt.pop(0)] ^= 1
        return bytes(data)


class StoredObjects:
    """A prefix of a bucket, its objects, and a reader of them."""

    def __init__(self, server: S3Server, data_dir: Path, **settings: object) -> None:
        config = {
            "bucket": server.bucket,
            "endpoint_url": server.endpoint_url,
            "addressing": "path",
            "prefix": f"{data_dir.name}/",
            "block_bytes": 64 * KIB,
            "disk_cache_bytes": 0,
            "read_ahead_bytes": 0,
            "retry_ms_max": 0,
        }
        self.config = S3Config.model_validate(config | settings)
        self.data_dir = data_dir
        self.bucket = HeldBucket(self.config)
        self.catalog = Catalog()
        self.packed: dict[int, bytes] = {}
        self.loads: list[int] = []
        self.built: dict[int, LogObject] = {}
        self.on_load: Callable[[], None] = lambda: None
        self.start()

    def start(self, **settings: object) -> None:
        """Begin with empty memory, as after a restart with other settings."""
        self.config = S3Config.model_validate(self.config.model_dump() | settings)
        self.rows = RowsCache(self._load, bytes_max=self.config.rows_cache_bytes)
        self.cache = ObjectCache(
            self.bucket, self.config, data_dir=self.data_dir, prefix=self.config.prefix
        )
        self.reader = Reader(self.catalog, self.rows, self.cache, self.config)

    async def _load(self, number: int) -> bytes | None:
        self.loads.append(number)
        self.on_load()
        return self.packed.get(number)

    def add(self, entries: Sequence[Entry], *, in_tail: bool = False) -> StoredObject:
        """Put an object of ``entries``, as one append, and let the reader know of it."""
        number = len(self.catalog.objects) + 1
        ids = {target.partition_id for entry in entries for target in entry.targets}
        parts = {one: Part(0, ALL, is_deleted=False, introduction=None) for one in ids}
        appends = Appends(entries, frozenset({len(entries) - 1}), 1)
        built = build_log_object(ObjectHeader(UUID(int=1), number, 7, 1_000), appends, parts)
        key = object_key(self.config.prefix, number, 7)
        etag = self.bucket.put(key, [built.data])
        stored = StoredObject(
            number, KIND_LOG, 7, 1, appends.next_sequence, len(built.data), etag, 0,
            frozenset(ids),
        )  # fmt: skip
        self.built[number] = built
        self.packed[number] = pack_rows(built.rows)
        self.catalog.objects[number] = stored
        for partition_id, extent in built.parts:
            state = self.catalog.partition(partition_id)
            state.extents.append(extent)
            state.end = max(state.end, extent.end)
        if in_tail:
            self.cache.put_tail(number, built.body)
            self.rows.put(number, built.rows)
        return stored

    def replace(self, number: int, data: Buffer) -> None:
        """Put other bytes in an object's place, as only an accident could."""
        stored = self.catalog.objects[number]
        key = object_key(self.config.prefix, number, stored.epoch)
        self.bucket._client().put_object(Bucket=self.config.bucket, Key=key, Body=data)

    async def read(
        self, partition_id: int, start: int = 0, end: int = ALL, *, bytes_max: int = ALL
    ) -> list[bytes]:
        state = self.catalog.partition(partition_id)
        batches = await self.reader.read(state, start, end, bytes_max=bytes_max)
        return list(map(bytes, batches))

    def read_cached(
        self, partition_id: int, start: int = 0, end: int = ALL, *, bytes_max: int = ALL
    ) -> list[bytes] | None:
        state = self.catalog.partition(partition_id)
        batches = self.reader.read_cached(state, start, end, bytes_max=bytes_max)
        return None if batches is None else list(map(bytes, batches))

    async def offsets(self, partition_id: int, start: int = 0, end: int = ALL) -> list[int]:
        return offsets_of(await self.read(partition_id, start, end))

    def close(self) -> None:
        self.bucket.open.set()
        self.cache.close()
        self.bucket.close()
