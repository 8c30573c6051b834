"""Disks that fail, fill up, are slow, or lose power: ``Files`` in front of the real ones."""

import errno
import os
import random
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gateway.model import Buffer
from storage_adapters.segment_log.files import SystemFiles
from storage_adapters.segment_log.io_uring import OP_FSYNC, IoUring, Step
from storage_adapters.segment_log.synced import MARK_NAME

SECTOR_BYTES: Final = 512


class FailingFiles(SystemFiles):
    """Fails the named call with EIO from the moment ``fails`` is set."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.fails = False

    def fail(self) -> None:
        self.fails = True

    def _check(self, call: str) -> None:
        if self.fails and call == self.call:
            raise OSError(errno.EIO, "Input/output error")

    def create(self, path: Path) -> int:
        self._check("create")
        return super().create(path)

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self._check("write")
        return super().write(fd, buffers, position)

    def sync(self, fd: int) -> None:
        self._check("sync")
        super().sync(fd)


class StingyFiles(SystemFiles):
    """Writes fewer bytes than asked, as the system may."""

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        first = next(buffer for buffer in buffers if len(buffer))
        return super().write(fd, [memoryview(first)[: max(1, len(first) // 2)]], position)


class SlowFiles(SystemFiles):
    """Lets a sync wait until ``go`` is set; one fails with EIO if ``fails_once`` is."""

    def __init__(self) -> None:
        self.fails_once = False
        self.go = threading.Event()
        self.waiting = threading.Event()

    def sync(self, fd: int) -> None:
        self.waiting.set()
        self.go.wait(timeout=60)
        if self.fails_once:
            self.fails_once = False
            raise OSError(errno.EIO, "Input/output error")
        super().sync(fd)


class SmallDisk(SystemFiles):
    """Has room for ``free_bytes``; what is unlinked comes back."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes

    def room_bytes(self, path: Path) -> int:
        del path
        return self.free_bytes

    def allocate(self, fd: int, size_bytes: int) -> None:
        if size_bytes > self.free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.free_bytes -= size_bytes
        super().allocate(fd, size_bytes)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self.free_bytes += os.fstat(fd).st_size - size_bytes
        super().truncate(fd, size_bytes)

    def unlink(self, path: Path) -> None:
        self.free_bytes += path.stat().st_size
        super().unlink(path)


class FullDisk(SmallDisk):
    """Files that grow by writing take their room too."""

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        end = position + sum(map(len, buffers))
        growth = max(end - os.fstat(fd).st_size, 0)
        if growth > self.free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.free_bytes -= growth
        return super().write(fd, buffers, position)


class Event(NamedTuple):
    """Something that happened to a file, or an acknowledgement (``what`` = "ack")."""

    what: str
    path: Path
    position: int = 0
    data: bytes = b""


class RecordingFiles(SystemFiles):
    """Keeps a list of all that happens, for ``replay``."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._paths: dict[int, Path] = {}

    def ack(self, number: int) -> None:
        self.events.append(Event("ack", Path(), number))

    def create(self, path: Path) -> int:
        self.events.append(Event("create", path))
        fd = super().create(path)
        self._paths[fd] = path
        return fd

    def open(self, path: Path) -> int:
        fd = super().open(path)
        self._paths[fd] = path
        return fd

    def allocate(self, fd: int, size_bytes: int) -> None:
        super().allocate(fd, size_bytes)
        self.events.append(Event("truncate", self._paths[fd], size_bytes))

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self.note_write(fd, b"".join(buffers), position)
        return super().write(fd, buffers, position)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self.events.append(Event("truncate", self._paths[fd], size_bytes))
        super().truncate(fd, size_bytes)

    def sync(self, fd: int) -> None:
        began = self.note_sync(fd)
        super().sync(fd)
        self.events.append(began._replace(what="sync"))

    def note_write(self, fd: int, data: bytes, position: int) -> None:
        self.events.append(Event("write", self._paths[fd], position, data))

    def note_sync(self, fd: int) -> Event:
        """Note that a sync begins: what is in the file now is on the disk when it is done."""
        began = Event("sync began", self._paths[fd], len(self.events))
        self.events.append(began)
        return began

    def note_mark(self, fd: int) -> None:
        """Know the mark of what is synced, which is opened elsewhere."""
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.name == MARK_NAME and self._paths.get(fd) != path:
            self._paths[fd] = path
            self.events.append(Event("create", path))

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.events.append(Event("sync directory", path))

    def rename(self, path: Path, new_path: Path) -> None:
        self.events.append(Event("rename", path, data=os.fsencode(new_path)))
        super().rename(path, new_path)

    def unlink(self, path: Path) -> None:
        self.events.append(Event("unlink", path))
        super().unlink(path)


class RecordingRing(IoUring):
    """Has its chains in the list of ``RecordingFiles``, too.

    They were done when they are seen to be; what stands behind a sync, the mark of what is synced,
    has not begun before.
    """

    def __init__(self, files: RecordingFiles) -> None:
        super().__init__()
        self._files = files
        self._began: Event | None = None
        self._behind: list[Step] = []

    def begin(self, chain: Sequence[Step]) -> bool:
        (at,) = (number for number, step in enumerate(chain) if step.op == OP_FSYNC)
        self._note(chain[:at])
        self._began = self._files.note_sync(chain[at].fd)
        self._behind = list(chain[at + 1 :])
        return super().begin(chain)

    def results(self) -> list[int] | None:
        found = super().results()
        if found is not None and self._began is not None:
            assert min(found) >= 0, "a disk without faults"
            self._files.events.append(self._began._replace(what="sync"))
            self._began = None
            self._note(self._behind)
        return found

    def _note(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._files.note_mark(step.fd)
            self._files.note_write(step.fd, bytes(step.data or b""), step.position)


def replay(
    events: Sequence[Event],
    chance: random.Random,
    *,
    before: Mapping[Path, bytes] | None = None,
    syncs: bool = True,
) -> dict[Path, bytes]:
    """Return what a disk that held ``before`` may hold when the power goes after ``events``.

    What was synced is there. Of the rest each change is there, is not, or is there in part, in
    any order. ``syncs=False`` is a disk (or a program) that only pretends to sync.
    """
    disk = _Disk(before or {}, chance)
    synced_upto, names_upto = _promises(events if syncs else ())
    for index, event in enumerate(events):
        if event.what in {"create", "unlink", "rename"}:
            is_sure = index <= names_upto.get(event.path.parent, -1)
            disk.take_name(event, is_sure=is_sure)
        elif event.what in {"write", "truncate"}:
            disk.take_data(event, is_sure=index < synced_upto.get(event.path, 0))
    return disk.after_power_loss()


def _promises(events: Sequence[Event]) -> tuple[dict[Path, int], dict[Path, int]]:
    """Return up to which event each file is synced, and up to which the names are."""
    synced_upto: dict[Path, int] = {}
    names_upto: dict[Path, int] = {}
    for index, event in enumerate(events):
        if event.what == "sync":
            synced_upto[event.path] = max(synced_upto.get(event.path, 0), event.position)
        elif event.what == "sync directory":
            names_upto[event.path] = index
    return synced_upto, names_upto


class _Disk:
    """Content of the disk: what is certainly on it, and what may be."""

    def __init__(self, before: Mapping[Path, bytes], chance: random.Random) -> None:
        self._chance = chance
        self._sure = {path: bytearray(content) for path, content in before.items()}
        self._unsure: dict[Path, list[Event]] = {}
        self._nameless: set[Path] = set()

    def take_name(self, event: Event, *, is_sure: bool) -> None:
        happens = is_sure or self._chance.random() < 0.5
        if event.what == "unlink":
            if happens:
                self._sure.pop(event.path, None)
                self._unsure.pop(event.path, None)
        elif event.what == "rename":
            self._rename(event.path, Path(os.fsdecode(event.data)), happens=happens)
        else:
            self._sure[event.path] = bytearray()
            self._unsure.pop(event.path, None)
            self._nameless.discard(event.path)
            if not happens:
                self._nameless.add(event.path)

    def _rename(self, path: Path, new_path: Path, *, happens: bool) -> None:
        if path not in self._sure or not happens:
            return
        self._nameless.discard(path)
        self._sure[new_path] = self._sure.pop(path)
        self._unsure.pop(new_path, None)
        if path in self._unsure:
            self._unsure[new_path] = self._unsure.pop(path)

    def take_data(self, event: Event, *, is_sure: bool) -> None:
        if event.path not in self._sure:
            return
        if is_sure:
            _apply(self._sure[event.path], event)
        elif self._chance.random() < 0.7:
            self._unsure.setdefault(event.path, []).append(_tear(event, self._chance))

    def after_power_loss(self) -> dict[Path, bytes]:
        for path, events in self._unsure.items():
            self._chance.shuffle(events)
            for event in events:
                _apply(self._sure[path], event)
        return {
            path: bytes(content)
            for path, content in self._sure.items()
            if path not in self._nameless
        }


def _apply(content: bytearray, event: Event) -> None:
    end = event.position + len(event.data)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if event.what == "truncate":
        del content[event.position :]
    else:
        content[event.position : end] = event.data


def _tear(event: Event, chance: random.Random) -> Event:
    """Return the event, or a write of some whole sectors of it."""
    if event.what != "write" or chance.random() < 0.4:
        return event
    sectors = len(event.data) // SECTOR_BYTES + 1
    first = chance.randrange(sectors) * SECTOR_BYTES
    last = chance.randint(first // SECTOR_BYTES + 1, sectors) * SECTOR_BYTES
    data = event.data[first:last]
    return event._replace(position=event.position + first, data=data)
