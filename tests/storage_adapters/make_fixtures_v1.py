"""Made tests/fixtures/settled_v1 and bucket_v1 once; kept to show what is in them. Not run again.

    python -m tests.storage_adapters.make_fixtures_v1 <empty directory>

Run with the last version that wrote format 1 (commit 6c2dd8e): a data directory with settled
segments and a manifest, and a bucket with log objects and merged ones beside its index as SQL.
Partition 1 has large batches of its own; partitions 2 and 3 share each of theirs.
"""

import asyncio
import os
import sqlite3
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

from gateway.clock import SystemClock
from gateway.testing.storage import Host, append, delete, make_entry, truncate
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.config import S3Config
from tests.storage_adapters.settling import opened, settle
from tests.support.s3_servers import S3Server, moto
from tests.support.waiting import until

PREFIX = "v1/"
ROUNDS = 3


async def fill(storage: S3Storage, count: int = ROUNDS) -> None:
    """Append ``count`` times: to partition 1, and one batch to 2 and 3 together."""
    for _ in range(count):
        own = make_entry(
            (1, storage.bounds(1).end), size_bytes=1_500, epoch=storage.incarnation
        )
        shared = [(i, storage.bounds(i).end) for i in (2, 3)]
        await append(storage, own, make_entry(shared, 3, epoch=storage.incarnation))


async def make_settled(data_dir: Path) -> None:
    """Write settled segments, a closed segment of the log, and a manifest."""
    for is_last in (False, False, True):
        log = await opened(data_dir, settle_own_bytes=4_096)
        await fill(log)  # type: ignore[arg-type]  # Any storage.
        if is_last:
            await settle(log)
            await truncate(log, 2, 4)
            await append(log, make_entry((4, 0), 2, epoch=log.incarnation))
            await delete(log, 4)
        await log.close()
    (data_dir / "lock").unlink()


def is_merged(storage: S3Storage) -> bool:
    """Return whether there is a merged object."""
    return any(stored.kind == 2 for stored in storage._catalog.objects.values())


async def make_bucket(server: S3Server, folder: Path) -> None:
    """Write objects of two owners, of which some are merged, and dump the index."""
    (folder / "objects").mkdir(parents=True)
    database = folder / "metadata.sqlite"
    for merge_objects_min in (100, 2):
        config = S3Config(
            bucket=server.bucket,
            prefix=PREFIX,
            endpoint_url=server.endpoint_url,
            flush_interval_ms=1,
            disk_cache_bytes=0,
            merge_objects_min=merge_objects_min,
            merge_after_ms=0,
            sweep_interval_ms=50,
        )
        storage = S3Storage(config, data_dir=folder, clock=SystemClock())
        await storage.open(Host(f"sqlite:///{database}"))
        await fill(storage)
        storage.release_scans_before(storage.next_sequence)
        if merge_objects_min == 2:
            await until(partial(is_merged, storage))
            await truncate(storage, 2, 4)
            await fill(storage, 1)
        await storage.close()
    with sqlite3.connect(database) as sql:
        lines = list(sql.iterdump())
    (folder / "index.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")
    client = server.client()
    for row in client.list_objects_v2(Bucket=server.bucket, Prefix=PREFIX)["Contents"]:
        body = client.get_object(Bucket=server.bucket, Key=row["Key"])["Body"].read()
        (folder / row["Key"].removeprefix(PREFIX)).write_bytes(body)


def main(folder: Path) -> None:
    """Make both."""
    asyncio.run(make_settled(folder / "settled_v1"))
    (folder / "moto").mkdir()
    with moto(folder / "moto") as server, patch.dict(os.environ, server.env):
        asyncio.run(make_bucket(server, folder / "bucket_v1"))
    for path in (folder / "bucket_v1").glob("metadata.sqlite*"):
        path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
