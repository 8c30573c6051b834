"""Fixture shared by protocols: a disk that is soon full."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.small_disk import BALLAST_BYTES, DISK_BYTES


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
