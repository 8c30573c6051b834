"""Folder of settled segments: its manifest, and files that the manifest does not list."""

import os
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from gateway.errors import StorageUnavailable
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.footer import TRAILER_BYTES
from storage_adapters.formats.manifest import (
    FileRecord,
    Manifest,
    decode_manifest,
    encode_manifest,
)
from storage_adapters.formats.segment import KIND_SETTLED
from storage_adapters.segment_log.failpoints import hit
from storage_adapters.segment_log.files import Files, write_all
from storage_adapters.segment_log.loading import load_segment
from storage_adapters.segment_log.segments import (
    SETTLED_DIRECTORY,
    Segment,
    list_segments,
    settled_path,
)

_MANIFEST: Final = "MANIFEST"
_NEXT_MANIFEST: Final = "MANIFEST.new"


class SettledState(NamedTuple):
    """Settled segments found by a start. ``leftovers``: files that the manifest does not list."""

    manifest: Manifest | None
    segments: list[Segment]
    leftovers: list[Path]


class NotCommitted(Exception):
    """The manifest could not be written; the one before it stays in effect, and nothing changed."""


def manifest_path(data_dir: Path) -> Path:
    """Return the path of the manifest."""
    return data_dir / SETTLED_DIRECTORY / _MANIFEST


def read_manifest(data_dir: Path) -> Manifest | None:
    """Return the manifest, or None when nothing was ever settled.

    Errors: ``StorageUnavailable``.
    """
    path = manifest_path(data_dir)
    try:
        return decode_manifest(path.read_bytes())
    except FileNotFoundError:
        if list_segments(data_dir, SETTLED_DIRECTORY):
            raise StorageUnavailable(
                f"{path} is gone, but there are settled segments beside it. Restore it from a "
                "backup"
            ) from None
        return None
    except Damaged as error:
        raise StorageUnavailable(
            f"{path}: {error}. Restore the data directory from a backup"
        ) from error
    except TooNew as error:
        raise StorageUnavailable(
            f"{path} was written by a later version of Headgate ({error}); it cannot be opened "
            "by this one"
        ) from error


def load_settled(data_dir: Path) -> SettledState:
    """Return the settled segments in use, checked, and the other files of the folder.

    Errors: ``StorageUnavailable`` naming the file.
    """
    manifest = read_manifest(data_dir)
    records = () if manifest is None else manifest.files
    segments = [load_settled_segment(data_dir, record) for record in records]
    known = {record.number for record in records}
    found = list_segments(data_dir, SETTLED_DIRECTORY)
    leftovers = [path for number, path in found if number not in known]
    unfinished = data_dir / SETTLED_DIRECTORY / _NEXT_MANIFEST
    if unfinished.exists():
        leftovers.append(unfinished)
    return SettledState(manifest, segments, leftovers)


def load_settled_segment(data_dir: Path, record: FileRecord) -> Segment:
    """Return a settled segment with an intact footer. Errors: ``StorageUnavailable``."""
    path = settled_path(data_dir, record.number)
    try:
        loaded = load_segment(path, record.number, KIND_SETTLED)
    except FileNotFoundError:
        raise StorageUnavailable(
            f"{path} is gone, but the manifest counts it. Restore the file from a backup"
        ) from None
    segment = loaded.segment
    if (
        segment is None
        or segment.trailer is None
        or loaded.file_bytes != record.file_bytes
        or trailer_crc(path, loaded.file_bytes) != record.trailer_crc
    ):
        raise StorageUnavailable(
            f"{path}: the footer is damaged, or it is not the file that the manifest counts. "
            "Restore the file from a backup"
        )
    segment.record = record
    return segment


def trailer_crc(path: Path, file_bytes: int) -> int:
    """Return the CRC of a file's trailer, by which the manifest identifies it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return crc32c(os.pread(fd, TRAILER_BYTES, max(0, file_bytes - TRAILER_BYTES)))
    finally:
        os.close(fd)


def prepare_folder(files: Files, data_dir: Path, manifest: Manifest) -> None:
    """Create the folder with a manifest before the first settled file.

    So settled files without a manifest always mean that the manifest was removed.
    """
    folder = data_dir / SETTLED_DIRECTORY
    if manifest_path(data_dir).exists():
        return
    folder.mkdir(exist_ok=True)
    files.sync_directory(data_dir)
    commit_manifest(files, data_dir, manifest)


def commit_manifest(files: Files, data_dir: Path, manifest: Manifest) -> None:
    """Replace the manifest. In a thread.

    Errors: ``NotCommitted`` when it was not replaced; ``OSError`` when that is unknown.
    """
    folder = data_dir / SETTLED_DIRECTORY
    path = folder / _NEXT_MANIFEST
    try:
        if path.exists():
            files.unlink(path)
        fd = files.create(path)
        try:
            write_all(files, fd, [encode_manifest(manifest)], 0)
            hit("manifest.written")
            files.sync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise NotCommitted(str(error)) from error
    hit("manifest.synced")
    files.rename(path, folder / _MANIFEST)
    hit("manifest.renamed")
    files.sync_directory(folder)
    hit("manifest.committed")
