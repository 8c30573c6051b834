"""Measured rates, and the time a client waits to come back to its limit.

As in Apache Kafka (``ClientQuotaManager``): a rate is the sum of the last ``SAMPLES`` samples of
one second each, over the time since the oldest began, which counts as ten seconds at least. So a
client that was silent may send ten seconds' worth at once. A client above its limit waits until
the rate would be the limit if nothing more came.
"""

from collections import deque
from typing import Final

SAMPLES: Final = 11  # Kafka's ``quota.window.num``
SAMPLE_MS: Final = 1_000  # Kafka's ``quota.window.size.seconds``
THROTTLE_MS_MAX: Final = 3_600_000
"""Longest throttle; Kafka has no bound."""
_MS_PER_S: Final = 1_000


def burst(limit: float) -> float:
    """Return the amount that a client at its limit, silent before, may send at once.

    >>> burst(1024.0)
    10240.0
    """
    return limit * (SAMPLES - 1) * SAMPLE_MS / _MS_PER_S


class WindowedRate:
    """Amount per second in a sliding window. All times are monotonic milliseconds."""

    __slots__ = ("_samples", "_total")

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque()  # (start, amount)
        self._total = 0.0

    def charge(self, amount: float, now_ms: int, limit: float) -> int:
        """Count an amount; return the milliseconds to wait, 0 within the limit."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < SAMPLE_MS:
            start_ms, before = samples[-1]
            samples[-1] = start_ms, before + amount
        else:
            samples.append((now_ms, amount))
        self._total += amount
        return self.excess_ms(now_ms, limit)

    def excess_ms(self, now_ms: int, limit: float) -> int:
        """Return the milliseconds to wait as it is now, 0 within the limit."""
        self._forget(now_ms)
        if self._total <= 0:
            return 0
        wait_ms = self._total * _MS_PER_S / limit - self._window_ms(now_ms)
        return min(round(wait_ms), THROTTLE_MS_MAX) if wait_ms > 0 else 0

    def _window_ms(self, now_ms: int) -> int:
        """Return the time since the oldest sample, with missing samples as whole ones."""
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        missing = max(SAMPLES - 1 - elapsed_ms // SAMPLE_MS, 0)
        return elapsed_ms + missing * SAMPLE_MS

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= SAMPLES * SAMPLE_MS:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0  # without what roundings have left


class TokenBucket:
    """Tokens that come at a rate; a request may take more than there are, and then waits.

    As in Apache Kafka for changes of topics (KIP-599): it holds the tokens of 11 seconds.
    """

    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self, now_ms: int, limit: float) -> None:
        self._tokens = limit * SAMPLES
        self._filled_ms = now_ms

    def charge(self, amount: float, now_ms: int, limit: float) -> int:
        """Take tokens; return the milliseconds until there are any again."""
        self._fill(now_ms, limit)
        self._tokens -= amount
        return self._wait_ms(limit)

    def excess_ms(self, now_ms: int, limit: float) -> int:
        """Return the milliseconds until there are tokens again; 0 if there are."""
        self._fill(now_ms, limit)
        return self._wait_ms(limit)

    def _fill(self, now_ms: int, limit: float) -> None:
        fresh = (now_ms - self._filled_ms) * limit / _MS_PER_S
        self._tokens = min(self._tokens + fresh, limit * SAMPLES)
        self._filled_ms = now_ms

    def _wait_ms(self, limit: float) -> int:
        return min(max(round(-self._tokens * _MS_PER_S / limit), 0), THROTTLE_MS_MAX)
