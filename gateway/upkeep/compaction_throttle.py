"""Throttle of compaction: bytes per second, and turns of the interpreter."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.model import Buffer, parse_batch_header

RECORD_BYTES_COUNTED: Final = 256  # a smaller record takes as long
PAUSE_MS_MIN: Final = 10
TURN_S: Final = 0.0005  # how long decoding may keep the loop from running


class CompactionStopped(GatewayError):
    """Compaction stopped with the node; the running round has changed nothing."""


@contextmanager
def short_turns() -> Iterator[None]:
    """Shorten the interpreter's switch interval while a worker thread runs Python.

    By default it waits for 5 ms each time; here a tenth, which costs the other a fifth.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


class ReadThrottle:
    """Limits worker threads to a number of bytes per second; ``stopped`` ends their work."""

    def __init__(self, clock: Clock, bytes_per_s_max: int) -> None:
        self.stopped = threading.Event()
        self._clock = clock
        self._bytes_per_s_max = bytes_per_s_max
        self._loop_thread = threading.get_ident()
        self._seen_ms = clock.monotonic_ms()
        self._owed_ms = 0.0

    def wait_for(self, batch: Buffer) -> None:
        """Wait for a batch's turn. Error: ``CompactionStopped``."""
        size_bytes = max(
            len(batch), parse_batch_header(batch).record_count * RECORD_BYTES_COUNTED
        )
        now_ms = self._clock.monotonic_ms()
        self._owed_ms = max(self._owed_ms - (now_ms - self._seen_ms), 0.0)
        self._owed_ms += size_bytes * 1000 / self._bytes_per_s_max
        self._seen_ms = now_ms
        # A storage may rewrite on the loop's thread what it has in memory; that never waits.
        if self._owed_ms >= PAUSE_MS_MIN and threading.get_ident() != self._loop_thread:
            self.stopped.wait(self._owed_ms / 1000)
            self._owed_ms = 0.0
            self._seen_ms = self._clock.monotonic_ms()
        if self.stopped.is_set():
            raise CompactionStopped("the node stops")
