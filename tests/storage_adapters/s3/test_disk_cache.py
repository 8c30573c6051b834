"""Blocks on the disk: checked, bounded, kept over restarts, and never needed."""

import os
from pathlib import Path

import pytest
import structlog

from storage_adapters.s3.config import S3Config
from storage_adapters.s3.disk_cache import DiskCache

IDENTITY = "gw/objects/0000000000000001-1.seg\nabcdef"
HEADER_BYTES = 8


def new_cache(data_dir: Path, **settings: object) -> DiskCache:
    config = S3Config.model_validate({"bucket": "bucket", **settings})
    cache = DiskCache(config, data_dir)
    cache.open()
    return cache


def fill(cache: DiskCache, *blocks: tuple[int, int], size_bytes: int = 1_000) -> None:
    for block in blocks:
        cache.write(block, IDENTITY, bytes(size_bytes))


def kept(cache: DiskCache, *blocks: tuple[int, int]) -> list[tuple[int, int]]:
    return [block for block in blocks if cache.has(block)]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)

    cache.write((1, 0), IDENTITY, memoryview(b"record"))

    assert cache.has((1, 0))
    assert bytes(cache.read((1, 0), IDENTITY) or b"") == b"record"
    assert cache.read((1, 1), IDENTITY) is None
    assert cache.held_bytes == HEADER_BYTES + 6


def test_files_are_private(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0))
    (path,) = cache.folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert cache.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("cut", [0, 3, 8, 500])
def test_torn_file_is_a_miss(tmp_path: Path, cut: int) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0))
    (path,) = cache.folder.iterdir()

    os.truncate(path, cut)

    assert cache.read((1, 0), IDENTITY) is None
    assert not cache.has((1, 0))
    assert not path.exists()


def test_changed_byte_is_a_miss(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0))
    (path,) = cache.folder.iterdir()
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)

    assert cache.read((1, 0), IDENTITY) is None


def test_block_of_another_object_is_a_miss(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0), (1, 1))
    (cache.folder / "0000000000000001-00001.blk").rename(
        cache.folder / "0000000000000001-00000.blk"
    )

    assert cache.read((1, 0), IDENTITY) is None
    fill(cache, (1, 0))
    assert cache.read((1, 0), IDENTITY.replace("abc", "xyz")) is None  # its ETag


def test_used_blocks_outlive_others(tmp_path: Path) -> None:
    cache = new_cache(tmp_path, disk_cache_bytes=3 * 1_008)
    fill(cache, (1, 0), (1, 1), (1, 2))

    cache.read((1, 0), IDENTITY)
    fill(cache, (2, 0))

    assert kept(cache, (1, 0), (1, 1), (1, 2), (2, 0)) == [(1, 0), (1, 2), (2, 0)]
    assert cache.held_bytes == 3 * 1_008
    assert len(list(cache.folder.iterdir())) == 3


def test_block_that_is_written_again_counts_once(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0))
    fill(cache, (1, 0), size_bytes=500)
    assert cache.held_bytes == 508


def test_order_of_use_outlives_the_process(tmp_path: Path) -> None:
    cache = new_cache(tmp_path, disk_cache_bytes=3 * 1_008)
    fill(cache, (1, 0), (1, 1), (1, 2))
    for second, name in enumerate(["00001", "00002", "00000"]):
        path = cache.folder / f"0000000000000001-{name}.blk"
        os.utime(path, ns=(0, second * 1_000_000_000))

    again = new_cache(tmp_path, disk_cache_bytes=3 * 1_008)
    fill(again, (2, 0))

    assert kept(again, (1, 0), (1, 1), (1, 2), (2, 0)) == [(1, 0), (1, 2), (2, 0)]
    assert bytes(again.read((1, 2), IDENTITY) or b"") == bytes(1_000)


def test_reading_is_use_that_outlives_the_process(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0))
    (path,) = cache.folder.iterdir()
    os.utime(path, ns=(0, 0))

    cache.read((1, 0), IDENTITY)

    assert path.stat().st_mtime_ns > 0


def test_smaller_bound_after_a_restart_removes_the_oldest(tmp_path: Path) -> None:
    fill(new_cache(tmp_path), (1, 0), (1, 1), (1, 2))

    assert new_cache(tmp_path, disk_cache_bytes=2_500).held_bytes == 2 * 1_008


def test_no_cache_removes_what_there_was(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0))

    none = new_cache(tmp_path, disk_cache_bytes=0)
    fill(none, (1, 1))

    assert list(cache.folder.iterdir()) == []
    assert none.read((1, 0), IDENTITY) is None


@pytest.mark.parametrize(
    "other",
    [{"bucket": "another"}, {"prefix": "p/"}, {"block_bytes": 65_536}, {"endpoint_url": "x"}],
)
def test_foreign_blocks_are_removed(tmp_path: Path, other: dict[str, object]) -> None:
    foreign = new_cache(tmp_path)
    fill(foreign, (1, 0))
    stranger = tmp_path / "cache" / "of-somebody-else"
    stranger.mkdir()

    cache = new_cache(tmp_path, **other)

    assert not cache.has((1, 0))
    assert not foreign.folder.exists()
    assert stranger.exists()


def test_object_is_dropped_whole(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0), (1, 1), (2, 0))

    cache.drop(1)

    assert kept(cache, (1, 0), (1, 1), (2, 0)) == [(2, 0)]
    assert len(list(cache.folder.iterdir())) == 1


def test_block_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    cache = new_cache(tmp_path, disk_cache_bytes=900)
    fill(cache, (1, 0))
    assert cache.held_bytes == 0
    assert list(cache.folder.iterdir()) == []


def test_write_error_ends_the_cache_with_one_warning(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0))
    (cache.folder / "0000000000000001-00000.blk").unlink()
    cache.folder.rmdir()

    with structlog.testing.capture_logs() as logs:
        fill(cache, (1, 1), (1, 2))

    assert [line["event"] for line in logs] == ["the disk cache is off"]
    assert not cache.has((1, 0))
    assert cache.held_bytes == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_ends_the_cache(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    (cache.folder / "0000000000000001-00000.blk").symlink_to("/dev/full")

    with structlog.testing.capture_logs() as logs:
        fill(cache, (1, 0), (1, 1))

    assert "No space left" in logs[0]["error"]
    assert len(logs) == 1
    assert list(cache.folder.iterdir()) == []


def test_read_error_is_a_miss_and_ends_the_cache(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0))
    (path,) = cache.folder.iterdir()
    path.unlink()
    path.mkdir()  # reading it fails with EISDIR

    with structlog.testing.capture_logs() as logs:
        assert cache.read((1, 0), IDENTITY) is None

    assert len(logs) == 1


def test_file_that_somebody_removed_is_a_miss(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    fill(cache, (1, 0))
    (path,) = cache.folder.iterdir()
    path.unlink()

    assert cache.read((1, 0), IDENTITY) is None
    fill(cache, (1, 1))
    assert cache.has((1, 1))


def test_folder_that_cannot_be_made_leaves_no_cache(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")

    with structlog.testing.capture_logs() as logs:
        cache = new_cache(tmp_path)

    fill(cache, (1, 0))
    assert not cache.has((1, 0))
    assert len(logs) == 1
