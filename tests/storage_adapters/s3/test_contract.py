"""The storage in S3 against the suite of all storages, on a real server."""

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.clock import SystemClock
from gateway.errors import StorageUnavailable
from gateway.storage import StorageAdapter
from gateway.testing.compacting_storage import CompactingStorageContract
from gateway.testing.storage import Host
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.config import S3Config
from tests.support.s3_servers import S3Server


class TestS3(CompactingStorageContract):
    @pytest.fixture(autouse=True)
    def _place(self, server: S3Server) -> None:
        self.server = server
        self.prefix = f"{uuid4().hex}/"

    def new_host(self, data_dir: Path) -> Host:
        return Host(f"sqlite:///{data_dir}/metadata.sqlite")

    def new_storage(self, data_dir: Path) -> StorageAdapter:
        config = S3Config(
            bucket=self.server.bucket,
            prefix=self.prefix,
            endpoint_url=self.server.endpoint_url,
            flush_interval_ms=1,
            object_bytes=1 << 20,
            append_bytes_max=self.append_bytes_max,
            disk_cache_bytes=0,
            merge_objects_min=2,
            merge_after_ms=0,
            sweep_interval_ms=50,
        )
        return S3Storage(config, data_dir=data_dir, clock=SystemClock())

    def new_breakable(self, data_dir: Path) -> tuple[StorageAdapter, Callable[[], None]]:
        """See ``StorageContract``; what fails is the database of its objects."""
        storage = self.new_storage(data_dir)
        assert isinstance(storage, S3Storage)
        error = StorageUnavailable("the database is lost")
        return storage, lambda: storage._committer.fail(error)
