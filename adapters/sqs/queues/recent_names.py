"""Names of queues that were recently deleted or purged.

SQS bars the name of a deleted queue for 60 s, and purges a queue once per 60 s. The names are in
memory only; forgetting them at a restart harms nobody.
"""

from collections import OrderedDict
from typing import Final

from gateway.clock import Clock
from gateway.model import TopicName

NAMES_MAX: Final = 100_000  # above it the oldest are forgotten early
BARRED_MS: Final = 60_000


class RecentNames:
    """Names of the last ``barred_ms``; with 0 none are remembered. Loop only."""

    def __init__(self, clock: Clock, barred_ms: int = BARRED_MS) -> None:
        self._clock = clock
        self._barred_ms = barred_ms
        self._until_ms: OrderedDict[TopicName, int] = OrderedDict()

    def add(self, name: TopicName) -> None:
        """Remember a name from now on."""
        now = self._clock.monotonic_ms()
        self._forget(now)
        self._until_ms.pop(name, None)  # a name that comes again goes to the end
        if self._barred_ms:
            self._until_ms[name] = now + self._barred_ms

    def discard(self, name: TopicName) -> None:
        """Forget a name."""
        self._until_ms.pop(name, None)

    def __contains__(self, name: TopicName) -> bool:
        until = self._until_ms.get(name)
        return until is not None and until > self._clock.monotonic_ms()

    def _forget(self, now: int) -> None:
        """Drop expired names, which come first: all names have the same lifetime."""
        names = self._until_ms
        while names:
            name = next(iter(names))
            if names[name] > now and len(names) < NAMES_MAX:
                break
            del names[name]
