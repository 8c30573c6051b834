"""Fixtures shared by tests of several protocols or of S3: a full disk, a bucket, a database."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.crash.s3_gateways import new_database
from tests.crash.small_disk import BALLAST_BYTES, DISK_BYTES
from tests.support.s3_servers import S3Server, versitygw


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own that is soon full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-o", f"size={DISK_BYTES}"]
    subprocess.run(["mount", "-t", "tmpfs", *options, "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def ballast(small_disk: Path) -> Path:
    """A file that takes room; without it there is some again."""
    file = small_disk / "ballast"
    file.write_bytes(bytes(BALLAST_BYTES))
    return file


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    """An S3 server of one test, with its credentials in the environment."""
    with versitygw(tmp_path / "s3") as running, patch.dict(os.environ, running.env):
        yield running


@pytest.fixture
def metadata_url(postgres_url: str) -> Iterator[str]:
    """A PostgreSQL database of one test."""
    with new_database(postgres_url, f"d{uuid.uuid4().hex}") as found:
        yield found
