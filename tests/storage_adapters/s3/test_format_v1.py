"""A bucket of format 1, and its index, are read by this version; see make_fixtures_v1.py."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.clock import ManualClock, SystemClock
from gateway.errors import StorageUnavailable
from gateway.storage import Entry, Target
from gateway.testing.storage import Host, append, make_marker, read_all
from storage_adapters.s3 import index_tables
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.config import S3Config
from storage_adapters.s3.index import Index
from storage_adapters.s3.opening import catalog_of
from storage_adapters.s3.recovery import restore_index, survey_bucket
from tests.storage_adapters.format_v1 import FIXTURES, check_content
from tests.support.s3_servers import S3Server

PREFIX = "v1/"


class BucketV1:
    """The fixture in a bucket of its own, with the index of its time beside it."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self.server = replace(server, bucket=server.new_bucket())
        source = FIXTURES / "bucket_v1"
        with closing(self.server.client()) as client:
            for path in sorted([source / "headgate.json", *source.glob("objects/*.seg")]):
                key = f"{PREFIX}{path.relative_to(source)}"
                client.put_object(Bucket=self.server.bucket, Key=key, Body=path.read_bytes())
        self.database = folder / "metadata.sqlite"
        with closing(sqlite3.connect(self.database)) as sql:
            sql.executescript((source / "index.sql").read_text(encoding="utf-8"))
            sql.execute("UPDATE s3_index SET bucket = ?", (self.server.bucket,))
            sql.commit()
        self.config = S3Config(
            bucket=self.server.bucket,
            prefix=PREFIX,
            endpoint_url=self.server.endpoint_url,
            flush_interval_ms=1,
            disk_cache_bytes=0,
        )

    async def open(self) -> S3Storage:
        storage = S3Storage(self.config, data_dir=self.database.parent, clock=SystemClock())
        await storage.open(Host(f"sqlite:///{self.database}"))
        return storage

    def index_format(self) -> int:
        with closing(sqlite3.connect(self.database)) as sql:
            (found,) = sql.execute("SELECT format FROM s3_index").fetchone()
        return int(found)


@pytest.fixture
def bucket(server: S3Server, tmp_path: Path) -> BucketV1:
    return BucketV1(server, tmp_path)


async def test_a_bucket_is_read_and_its_index_becomes_format_3(bucket: BucketV1) -> None:
    assert bucket.index_format() == 1
    storage = await bucket.open()
    assert storage.incarnation == 3
    await check_content(storage, (7, 21, 21))

    marker = make_marker(7, is_abort=True, epoch=3)
    await append(storage, Entry((Target(1, 7),), marker, 1, 1_000))
    await storage.close()

    assert bucket.index_format() == 3
    storage = await bucket.open()
    assert await read_all(storage, 1, start=7) == [marker]
    assert [h.is_abort for h in storage.scan(0)][-1:] == [True]
    await storage.close()


async def test_a_lost_index_of_both_formats_is_rebuilt(
    bucket: BucketV1, tmp_path: Path
) -> None:
    storage = await bucket.open()
    await append(storage, Entry((Target(1, 7),), make_marker(7, epoch=3), 1, 1_000))
    await storage.close()
    index = Index(f"sqlite:///{tmp_path}/new.sqlite", clock=ManualClock(unix_ms=2_000_000))
    index.open()

    with closing(Bucket(bucket.config, SystemClock())) as client:
        survey = survey_bucket(bucket.config, client)
        restore_index(bucket.config, client, index, survey)
    found = catalog_of(index.load())
    index.close()

    assert not survey.damaged
    ends = {s.partition_id: s.end for s in found.partitions.values()}
    assert ends == {1: 8, 2: 21, 3: 21}


async def test_an_older_version_refuses_the_index(
    bucket: BucketV1, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await bucket.open()).close()

    monkeypatch.setattr(index_tables, "INDEX_FORMAT", 1)
    with pytest.raises(
        StorageUnavailable, match="it has format 3, this Headgate knows up to 1"
    ):
        await bucket.open()
