"""Looking at a server from outside while it works: memory, disk, what it has written."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.sides import Side
from tests.support.process_usage import resident_bytes

BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system
LOOK_AGAIN_S = 0.25


class Seen(NamedTuple):
    """One look. ``seconds`` since the first."""

    seconds: float
    memory_bytes: int
    disk_bytes: int


def disk_bytes(folder: Path) -> int:
    """Return what all files of a folder take on the disk; files come and go meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * BLOCK_BYTES
        except FileNotFoundError:
            continue
    return total


def written_bytes(pid: int) -> int:
    """Return the bytes that a process has had written to a disk, or has dirtied for it."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    fields = dict(line.split(": ") for line in lines)
    return int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])


def wait_quiet(value: Callable[[], float], *, quiet_s: float, within_s: float) -> float:
    """Return a value once it has not changed for a while, or when the time is over."""
    until = time.monotonic() + within_s
    last, since = value(), time.monotonic()
    while time.monotonic() < min(until, since + quiet_s):
        time.sleep(LOOK_AGAIN_S)
        now = value()
        if now != last:
            last, since = now, time.monotonic()
    return last


class Watch:
    """Looks at a server at an interval, in a thread, until it is left."""

    def __init__(self, side: Side, *, interval_s: float) -> None:
        self.seen: list[Seen] = []
        self._side = side
        self._interval_s = interval_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        started = time.monotonic()
        server = self._side.server
        while True:
            seconds = time.monotonic() - started
            memory = resident_bytes(server.pid)
            self.seen.append(Seen(seconds, memory, disk_bytes(server.data_dir)))
            if self._over.wait(self._interval_s):
                return
