"""Log messages of an outage: at once, then at growing intervals, and at its end."""

from typing import Final

import structlog

from gateway.clock import Clock

SAID_MS_MIN: Final = 5_000  # between two messages; doubled with each, up to the maximum
SAID_MS_MAX: Final = 300_000

_log = structlog.get_logger()


class Outage:
    """Outage of ``what``, which lasts while the tries under any name fail. Loop only."""

    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._failing: set[str] = set()
        self._tries = 0
        self._began_ms = 0
        self._next_ms = 0
        self._pause_ms = SAID_MS_MIN

    def note(self, name: str, error: Exception) -> None:
        """Note a failed try; log it if a message is due."""
        now_ms = self._clock.monotonic_ms()
        if not self._failing:
            self._tries, self._began_ms, self._next_ms = 0, now_ms, now_ms
            self._pause_ms = SAID_MS_MIN
        self._failing.add(name)
        self._tries += 1
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, SAID_MS_MAX)
            _log.warning(
                f"{self._what} is away",
                error=str(error),
                tries=self._tries,
                said_again_ms=self._next_ms - now_ms,
            )

    def over(self, name: str) -> None:
        """Note a successful try."""
        if name not in self._failing:
            return
        self._failing.discard(name)
        if not self._failing:
            away_ms = self._clock.monotonic_ms() - self._began_ms
            _log.info(f"{self._what} is back", tries=self._tries, away_ms=away_ms)
