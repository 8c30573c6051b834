"""Holders that want to know when a lease of theirs has ended: their messages may go to others."""

from collections.abc import Callable, Sequence

import structlog

from features.queue.model import LapsedRange

OnLapsed = Callable[[object, int, Sequence[LapsedRange]], None]
"""Called with the queue, a partition's number, and what the holder has not any more."""

_log = structlog.get_logger()


class LeaseEnds:
    """Callbacks by holder. Each is there until ``forget``, when its connection has ended."""

    def __init__(self) -> None:
        self._callbacks: dict[int, OnLapsed] = {}

    def add(self, holder: int, on_lapsed: OnLapsed) -> None:
        """Call a holder when leases of it have ended, before the messages go to others."""
        self._callbacks[holder] = on_lapsed

    def forget(self, holder: int) -> None:
        """Call a holder no more."""
        self._callbacks.pop(holder, None)

    def tell(self, queue: object, number: int, lapsed: Sequence[LapsedRange]) -> None:
        """Call the holders of ranges, each once."""
        by_holder: dict[int, list[LapsedRange]] = {}
        for one in lapsed:
            by_holder.setdefault(one.holder, []).append(one)
        for holder, ranges in by_holder.items():
            on_lapsed = self._callbacks.get(holder)
            if on_lapsed is None:
                continue
            try:
                on_lapsed(queue, number, ranges)
            except Exception:  # noqa: BLE001 - a bug of one holder; others are told nevertheless
                _log.exception("a holder has failed at the end of its lease")
