"""Fair turns: a tenant that takes a large part of a queue's receivers goes behind the others.

The rule is the one that AWS publishes for SQS fair queues: a tenant is noisy while more than 10 %
of the queue's messages in flight are its own, and 30 of them at least, or while more than 10 %
of the time that messages were lately in flight was spent on its own. A tenant is a message key;
messages without one are tenants of their own, and never noisy.

"Lately" fades: what was spent counts half after ``HALF_LIFE_MS``. What is new is written down
the larger instead of all that is old the smaller, so that only sums are compared.
"""

from heapq import nlargest
from operator import itemgetter
from typing import Final

SHARE: Final = 10
"""More than one part in so many is noisy: 10 %."""
IN_FLIGHT_MIN: Final = 30
HALF_LIFE_MS: Final = 30_000
TENANTS_MAX: Final = 20_000
"""Tenants whose time is remembered; above it those that spent the least are forgotten."""

_HALF_LIVES_MAX: Final = 64  # of growth: then all sums are brought down
_NEGLIGIBLE_MS: Final = 1e-6


class Fairness:
    """Messages in flight and time spent by tenant, over all lanes of one queue."""

    __slots__ = ("_base_unix_ms", "_in_flight", "_in_flight_count", "_spent", "_spent_in_all")

    def __init__(self) -> None:
        self._in_flight: dict[bytes, int] = {}
        self._in_flight_count = 0
        self._spent: dict[bytes, float] = {}
        self._spent_in_all = 0.0
        self._base_unix_ms = 0

    @property
    def tenant_count(self) -> int:
        """Number of tenants with state."""
        return len(self._in_flight.keys() | self._spent.keys())

    def took(self, key: bytes | None, count: int) -> None:
        """Count messages of a tenant that go in flight."""
        self._in_flight_count += count
        if key is not None:
            self._in_flight[key] = self._in_flight.get(key, 0) + count

    def done(self, key: bytes | None, count: int, held_ms: int, now_unix_ms: int) -> None:
        """Count messages of a tenant that end their flight; each took ``held_ms``."""
        self._in_flight_count -= count
        if key is not None:
            left = self._in_flight[key] - count
            if left:
                self._in_flight[key] = left
            else:
                del self._in_flight[key]
        if held_ms > 0:
            self._spend(key, count * held_ms, now_unix_ms)

    def _spend(self, key: bytes | None, span_ms: int, now_unix_ms: int) -> None:
        half_lives = max(now_unix_ms - self._base_unix_ms, 0) / HALF_LIFE_MS
        if half_lives > _HALF_LIVES_MAX:
            self._bring_down(half_lives)
            self._base_unix_ms = now_unix_ms
            half_lives = 0.0
        worth = span_ms * 2.0**half_lives
        self._spent_in_all += worth
        if key is None:
            return
        self._spent[key] = self._spent.get(key, 0.0) + worth
        if len(self._spent) > TENANTS_MAX:
            kept = nlargest(TENANTS_MAX // 2, self._spent.items(), key=itemgetter(1))
            self._spent = dict(kept)

    def _bring_down(self, half_lives: float) -> None:
        scale = 2.0**-half_lives if half_lives < 2 * _HALF_LIVES_MAX else 0.0
        self._spent_in_all *= scale
        scaled = ((key, spent * scale) for key, spent in self._spent.items())
        self._spent = {key: spent for key, spent in scaled if spent > _NEGLIGIBLE_MS}

    def is_noisy(self, key: bytes | None, now_unix_ms: int) -> bool:
        """Return whether a tenant has more than its share, and goes behind the quiet ones."""
        del now_unix_ms  # shares of sums that fade alike do not change with time
        if key is None:
            return False
        in_flight = self._in_flight.get(key, 0)
        if in_flight >= IN_FLIGHT_MIN and in_flight * SHARE > self._in_flight_count:
            return True
        return self._spent.get(key, 0.0) * SHARE > self._spent_in_all
