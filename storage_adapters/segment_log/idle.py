"""Closing of the active segment of an idle node, so that its batches are settled too."""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.clock import Clock
from storage_adapters.segment_log.appender import Appender
from storage_adapters.segment_log.config import SegmentLogConfig

BYTES_MIN: Final = 1_048_576  # less is read as cheaply where it is
_SEGMENT_SHARE: Final = 16  # of a segment, where that is less
RETRY_S: Final = 5.0


class IdleCloser:
    """Closer of the active segment after ``settle_after_ms`` without appends. Loop only.

    ``wake`` asks for ``look`` to be called.
    """

    def __init__(
        self,
        appender: Appender,
        clock: Clock,
        config: SegmentLogConfig,
        wake: Callable[[], None],
    ) -> None:
        self._appender = appender
        self._clock = clock
        self._quiet_ms = config.settle_after_ms
        self._bytes_min = min(BYTES_MIN, config.segment_bytes // _SEGMENT_SHARE)
        self._wake = wake
        self._sequence = 0
        self._since_ms = 0
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Close the segment if it is due; otherwise schedule the next check."""
        self.stop()
        if self._appender.active_bytes < self._bytes_min:
            return
        now_ms = self._clock.monotonic_ms()
        if self._appender.next_sequence != self._sequence:
            self._sequence, self._since_ms = self._appender.next_sequence, now_ms
        wait_ms = self._since_ms + self._quiet_ms - now_ms
        if wait_ms > 0:
            self._look_again(wait_ms / 1_000)
        elif not self._appender.close_active():
            self._look_again(RETRY_S)

    def _look_again(self, delay_s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def stop(self) -> None:
        """Cancel the scheduled check."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
