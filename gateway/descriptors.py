"""File descriptors of this process: their limit, and shortages.

Connections and files share one bound of the system (``ulimit -n``). Listeners leave a reserve for
files (see ``gateway.admission``), so that a flood of connections does not stop the log. When the
system has none left all the same (EMFILE, ENFILE), what needed one fails, retriable, and the
shortage is counted and logged at most once a second.
"""

import errno
import resource
from typing import Final

import structlog

from gateway.clock import Clock, SystemClock
from gateway.errors import StorageUnavailable

LOGGED_EVERY_MS: Final = 1_000

_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE})

log = structlog.get_logger()


class NoDescriptors(StorageUnavailable):
    """Shortage of file descriptors in the process or the system; retriable."""


class Shortages:
    """Counter of failures caused by missing descriptors, for any thread."""

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        self._clock = clock
        self._logged_count = 0
        self._logged_ms = clock.monotonic_ms() - LOGGED_EVERY_MS

    def note(self, error: OSError) -> None:
        """Count a failure, and log it unless one was logged within the last second."""
        self.count += 1
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._logged_ms >= LOGGED_EVERY_MS:
            self._logged_ms = now_ms
            count, self._logged_count = self.count - self._logged_count, self.count
            log.error("no file descriptors left", detail=str(error), count=count)


SHORTAGES: Final = Shortages(SystemClock())


def is_shortage(error: BaseException) -> bool:
    """Say whether an error is a shortage of descriptors."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


def raise_limit() -> int:
    """Raise the soft limit of open descriptors to the hard one; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # a system that promises more than it gives
            return soft
    return hard


def limit() -> int:
    """Return the limit of open descriptors of this process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
