"""File descriptors of this process: how many there may be, and what a shortage of them means.

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
    """The process, or the system, has no file descriptor left; there may be one in a moment."""


class Shortages:
    """Counts failures for want of a descriptor, from any thread."""

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        self._clock = clock
        self._logged_count = 0
        self._logged_ms = clock.monotonic_ms() - LOGGED_EVERY_MS

    def note(self, error: OSError) -> None:
        """Count one, and log it unless one was logged within the last second."""
        self.count += 1
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._logged_ms >= LOGGED_EVERY_MS:
            self._logged_ms = now_ms
            count, self._logged_count = self.count - self._logged_count, self.count
            log.error("no file descriptors left", detail=str(error), count=count)


SHORTAGES: Final = Shortages(SystemClock())


def is_shortage(error: BaseException) -> bool:
    """Say whether an error means that there is no descriptor left."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


def raise_limit() -> int:
    """Raise the soft limit of open descriptors to the hard one; return what holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # a system that promises more than it gives
            return soft
    return hard


def limit() -> int:
    """Return how many descriptors this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
