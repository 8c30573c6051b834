"""Disk cache of objects: one file for each block, checked when it is read.

A file's name has object and block; it begins with a CRC over the object's key and ETag, the block's
number and its data. A torn or foreign file is a miss. The cache is optional: a full disk or an I/O
error ends it with one warning.
"""

import os
import re
import struct
import threading
from collections import OrderedDict
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import structlog
from crc32c import crc32c

from gateway.model import Buffer
from storage_adapters.s3.config import S3Config

FOLDER: Final = "cache"  # in data_dir
_FOLDER_NAME: Final = re.compile(r"s3-[0-9a-f]{16}")
_FILE_NAME: Final = re.compile(r"(\d{16,})-(\d{5,})\.blk")
_HEADER: Final = struct.Struct("<4sI")
_MAGIC: Final = b"HGb1"

_log = structlog.get_logger()

Block = tuple[int, int]  # number of the object, and of the block in it


class DiskCache:
    """Least recently used files up to ``bytes_max`` together. Any thread; file operations block.

    The order of use is kept as the files' times, so that it outlives the process.
    """

    def __init__(self, config: S3Config, data_dir: Path) -> None:
        # Blocks of another size or bucket are in another folder.
        place = (config.endpoint_url, config.bucket, config.prefix, str(config.block_bytes))
        name = sha256("\n".join(place).encode()).hexdigest()[:16]
        self.folder = data_dir / FOLDER / f"s3-{name}"
        self._bytes_max = config.disk_cache_bytes
        self._lock = threading.Lock()  # of the index; never held while a file is touched
        self._sizes: OrderedDict[Block, int] = OrderedDict()
        self._is_on = False
        self._has_ended = False
        self.held_bytes = 0

    def open(self) -> None:
        """Load the files of an earlier process; until then there are no hits. Once, in a thread."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._remove_foreign()
            found = self._scan()
        except OSError as error:
            self._end(error)
            return
        with self._lock:
            for _, block, size_bytes in sorted(found):
                self._sizes[block] = size_bytes
                self.held_bytes += size_bytes
            self._is_on = self._bytes_max > 0
        self._shrink()

    def has(self, block: Block) -> bool:
        """Return whether a block is probably cached. Does not block."""
        return block in self._sizes

    def read(self, block: Block, identity: str) -> memoryview | None:
        """Return a block of the object that ``identity`` names, or None.

        ``identity`` holds the object's key and ETag, so it differs from that of an older object
        with the same number in a bucket that was emptied.
        """
        path = self._path(block)
        try:
            data = path.read_bytes()
            os.utime(path)
        except FileNotFoundError:  # evicted meanwhile
            self._forget(block)
            return None
        except OSError as error:
            self._end(error)
            return None
        raw = memoryview(data)[_HEADER.size :]
        if data[: _HEADER.size] != _header(block, identity, raw):
            self.remove(block)
            return None
        with self._lock:
            if block in self._sizes:
                self._sizes.move_to_end(block)
        return raw

    def write(self, block: Block, identity: str, data: Buffer) -> None:
        """Keep a block, and make room for it."""
        size_bytes = _HEADER.size + len(data)
        if not self._is_on or size_bytes > self._bytes_max:
            return
        path = self._path(block)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                for piece in (_header(block, identity, data), data):
                    _write_all(descriptor, piece)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._end(error)
            with suppress(OSError):
                path.unlink(missing_ok=True)
            return
        with self._lock:
            if self._has_ended:
                return
            self.held_bytes += size_bytes - self._sizes.pop(block, 0)
            self._sizes[block] = size_bytes
        self._shrink()

    def drop(self, number: int) -> None:
        """Remove an object's blocks."""
        with self._lock:
            blocks = [block for block in self._sizes if block[0] == number]
        for block in blocks:
            self.remove(block)

    def remove(self, block: Block) -> None:
        """Remove a block."""
        self._forget(block)
        try:
            self._path(block).unlink(missing_ok=True)
        except OSError as error:
            self._end(error)

    def _forget(self, block: Block) -> None:
        with self._lock:
            self.held_bytes -= self._sizes.pop(block, 0)

    def _shrink(self) -> None:
        while True:
            with self._lock:
                if self.held_bytes <= self._bytes_max or not self._sizes:
                    return
                oldest = next(iter(self._sizes))
            self.remove(oldest)

    def _end(self, error: OSError) -> None:
        """Disable the disk cache."""
        with self._lock:
            had_ended, self._has_ended = self._has_ended, True
            self._is_on = False
            self._sizes.clear()
            self.held_bytes = 0
        if not had_ended:
            _log.warning("the disk cache is off", folder=str(self.folder), error=str(error))

    def _remove_foreign(self) -> None:
        for other in self.folder.parent.iterdir():
            if other != self.folder and _FOLDER_NAME.fullmatch(other.name):
                for path in other.iterdir():
                    path.unlink(missing_ok=True)
                other.rmdir()

    def _scan(self) -> list[tuple[int, Block, int]]:
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                name = _FILE_NAME.fullmatch(entry.name)
                if name is None:
                    continue
                stat = entry.stat()
                block = int(name[1]), int(name[2])
                found.append((stat.st_mtime_ns, block, stat.st_size))
        return found

    def _path(self, block: Block) -> Path:
        return self.folder / f"{block[0]:016}-{block[1]:05}.blk"


def _header(block: Block, identity: str, data: Buffer) -> bytes:
    seed = crc32c(f"{identity}\n{block[1]}".encode())
    return _HEADER.pack(_MAGIC, crc32c(data, seed))


def _write_all(descriptor: int, data: Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
