"""Retries of failed background work, with a growing delay."""

from typing import Final, NamedTuple

import structlog

from gateway.clock import Clock
from gateway.errors import StorageUnavailable
from storage_adapters.segment_log.metrics import SegmentLogMetrics
from storage_adapters.segment_log.settled_change import is_no_space
from storage_adapters.segment_log.settled_files import NotCommitted

RETRY_MS_MIN: Final = 5_000  # the constant delay for lack of space
RETRY_MS_MAX: Final = 300_000

_EXPECTED: Final = (NotCommitted, OSError, StorageUnavailable)  # others are bugs

log = structlog.get_logger()


class _Failure(NamedTuple):
    tries: int
    due_ms: int


class Retries:
    """Failed work by name, with the time of its next try. Loop only."""

    def __init__(self, clock: Clock, metrics: SegmentLogMetrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._failed: dict[str, _Failure] = {}
        self._begun_ms = 0

    def begin(self) -> None:
        """Begin a round in which all due work is tried."""
        self._begun_ms = self._clock.monotonic_ms()

    def may_try(self, work: str) -> bool:
        """Return whether ``work`` did not fail, or is due again."""
        failure = self._failed.get(work)
        return failure is None or self._clock.monotonic_ms() >= failure.due_ms

    def note_success(self, work: str) -> None:
        """Forget its failures."""
        if self._failed.pop(work, None) is not None:
            log.info("settling goes on", work=work)

    def note_failure(self, work: str, error: BaseException) -> None:
        """Count and log a failure. Lack of space is logged once, when it begins."""
        failure = self._failed.get(work)
        tries = 1 if failure is None else failure.tries + 1
        delay_ms = RETRY_MS_MIN
        if not is_no_space(error):
            delay_ms = min(RETRY_MS_MIN << min(tries - 1, 10), RETRY_MS_MAX)
        self._failed[work] = _Failure(tries, self._clock.monotonic_ms() + delay_ms)
        self._metrics.settling_failures += 1
        if tries == 1 or not is_no_space(error):
            log.warning(
                "settling failed; it is tried again",
                work=work,
                tries=tries,
                retry_s=delay_ms / 1_000,
                error=str(error),
                exc_info=None if isinstance(error, _EXPECTED) else error,
            )

    def next_s(self) -> float | None:
        """Return the seconds until the next retry, None without one.

        Called after all due work was tried: other due work has lost its files, and is dropped.
        """
        failed = self._failed
        for work in [work for work, (_, due_ms) in failed.items() if due_ms <= self._begun_ms]:
            del failed[work]
        if not failed:
            return None
        wait_ms = min(due_ms for _, due_ms in failed.values()) - self._clock.monotonic_ms()
        return max(wait_ms, 0) / 1_000
