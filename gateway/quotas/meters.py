"""Meters of a client's quotas: each charges one rate, and says how long the client waits."""

from collections import Counter
from typing import NamedTuple, Protocol

from features.quota.model import QuotaKey
from features.quota.rates import SAMPLE_MS, burst
from gateway.clock import Clock

_BOUNDED: frozenset[QuotaKey] = frozenset({QuotaKey.REQUEST_PERCENTAGE})
"""Quotas whose throttle is a sample at most, as in Kafka: what comes later counts by itself."""


class Rate(Protocol):
    """``WindowedRate`` or ``TokenBucket`` of ``features.quota.rates``."""

    def charge(self, amount: float, now_ms: int, limit: float) -> int:
        """Count an amount; return the milliseconds to wait."""
        ...

    def excess_ms(self, now_ms: int, limit: float) -> int:
        """Return the milliseconds to wait as it is now."""
        ...


class ThrottleCounts:
    """Throttled requests, and the milliseconds they were throttled for, by quota."""

    def __init__(self) -> None:
        self.count: Counter[QuotaKey] = Counter()
        self.sum_ms: Counter[QuotaKey] = Counter()

    def add(self, key: QuotaKey, wait_ms: int) -> None:
        """Count a throttled request."""
        self.count[key] += 1
        self.sum_ms[key] += wait_ms


class Meter:
    """Limit of one quota, and the rate of the clients that share it."""

    __slots__ = ("_clock", "_counts", "_key", "_limit", "_rate")

    def __init__(
        self, key: QuotaKey, limit: float, rate: Rate, clock: Clock, counts: ThrottleCounts
    ) -> None:
        self._key = key
        self._limit = limit
        self._rate = rate
        self._clock = clock
        self._counts = counts

    @property
    def burst(self) -> float:
        """Amount that may be charged at once after a silence."""
        return burst(self._limit)

    def charge(self, amount: float) -> int:
        """Count an amount; return the milliseconds that the client waits, 0 within the limit."""
        wait_ms = self._rate.charge(amount, self._clock.monotonic_ms(), self._limit)
        return self._throttle_ms(wait_ms)

    def refund(self, amount: float) -> None:
        """Take back an amount that was charged."""
        self._rate.charge(-amount, self._clock.monotonic_ms(), self._limit)

    def check(self) -> int:
        """Return the milliseconds to wait before anything may be charged; 0 within the limit."""
        return self._throttle_ms(self._rate.excess_ms(self._clock.monotonic_ms(), self._limit))

    def _throttle_ms(self, wait_ms: int) -> int:
        if not wait_ms:
            return 0
        if self._key in _BOUNDED:
            wait_ms = min(wait_ms, SAMPLE_MS)
        self._counts.add(self._key, wait_ms)
        return wait_ms


class ClientLimits(NamedTuple):
    """Quotas of one user and client id; None where there is none."""

    produced: Meter | None
    consumed: Meter | None
    requests: Meter | None
    mutations: Meter | None
