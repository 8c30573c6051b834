"""Faults of peers, counted one by one and logged at a bounded rate.

The first fault of a kind is a line at once. Those of the same kind that follow within a second are
counted, and are one line together when the second is over.
"""

from collections import Counter
from typing import Final, NamedTuple

import structlog

DETAIL_CHARACTERS_MAX: Final = 500

log = structlog.get_logger()


class _More(NamedTuple):
    """Number of unlogged faults of a kind, and the last of them."""

    unlogged: int
    peer: str
    detail: str


class FaultLog:
    """Faults of one listener's peers. Call ``end_second`` once a second."""

    def __init__(self, protocol: str) -> None:
        self.counts: Counter[str] = Counter()
        self._protocol = protocol
        self._more: dict[str, _More] = {}

    def note(self, kind: str, peer: str, detail: str) -> None:
        """Count a fault, and log it unless one of its kind was logged within the last second."""
        self.count(kind)
        if self.begins(kind, peer, detail):
            log.warning(
                "peer fault",
                protocol=self._protocol,
                peer=peer,
                kind=kind,
                detail=detail[:DETAIL_CHARACTERS_MAX],
            )

    def count(self, kind: str) -> None:
        """Count a fault that is not logged."""
        self.counts[kind] += 1

    def begins(self, kind: str, peer: str, detail: str) -> bool:
        """Return whether a fault gets its own line now; else the next line counts it."""
        known = self._more.get(kind)
        held = -1 if known is None else known.unlogged
        self._more[kind] = _More(held + 1, peer, detail)
        return known is None

    def end_second(self) -> None:
        """Log a line for each kind with unlogged faults."""
        more, self._more = self._more, {}
        for kind, (count, peer, detail) in more.items():
            if count:
                self._more[kind] = _More(
                    0, "", ""
                )  # it goes on: no line before the next second
                log.warning(
                    "peer faults",
                    protocol=self._protocol,
                    kind=kind,
                    count=count,
                    last_peer=peer,
                    last_detail=detail[:DETAIL_CHARACTERS_MAX],
                )
