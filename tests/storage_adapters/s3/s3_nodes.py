"""Nodes of the whole adapter on a prefix of a real bucket, with any database."""

from pathlib import Path
from uuid import uuid4

import pytest

from gateway.clock import Clock, SystemClock
from gateway.testing.storage import Host
from storage_adapters.s3.adapter import S3Storage
from storage_adapters.s3.config import S3Config
from tests.support.s3_servers import S3Server


class NodeBucket:
    """A prefix of a bucket, and a database of SQLite for who brings none."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self._folder = folder
        self._fixed = {
            "bucket": server.bucket,
            "prefix": f"{uuid4().hex}/",
            "endpoint_url": server.endpoint_url,
            "flush_interval_ms": 1,
            "disk_cache_bytes": 0,
        }
        self.url = f"sqlite:///{folder}/metadata.sqlite"

    def config(self, **more: object) -> S3Config:
        """Return the settings of a node here."""
        return S3Config.model_validate({**self._fixed, **more})

    async def open(
        self, metadata_url: str = "", clock: Clock | None = None, **more: object
    ) -> S3Storage:
        """Start a node."""
        config = self.config(**more)
        storage = S3Storage(config, data_dir=self._folder, clock=clock or SystemClock())
        await storage.open(Host(metadata_url or self.url))
        return storage


@pytest.fixture
def place(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeBucket:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return NodeBucket(server, tmp_path)
