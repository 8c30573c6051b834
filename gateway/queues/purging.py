"""Purge of a queue: of all its partitions, answered once."""

from collections.abc import Sequence

from gateway.errors import StorageUnavailable
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.storage import OnDone


def purge_lanes(
    context: QueueContext, lanes: Sequence[QueueLane], on_done: OnDone, *, ready_only: bool
) -> None:
    """Drop all current messages of lanes; ``on_done`` runs once, when that is durable.

    ``ready_only``: those in flight stay; delayed ones go.
    """
    gate = PurgeGate(len(lanes), on_done)
    for lane in lanes:
        purge = lane.lane.expire_before if ready_only else lane.lane.purge
        lane.done(purge(lane.partition.stable_end), gate.one)
        lane.feed_more()
    if not lanes:
        context.loop.call_soon(on_done, None)


class PurgeGate:
    """Calls ``on_done`` once after ``count`` results, with the last error."""

    __slots__ = ("_error", "_left", "_on_done")

    def __init__(self, count: int, on_done: OnDone) -> None:
        self._left = count
        self._on_done = on_done
        self._error: StorageUnavailable | None = None

    def one(self, error: StorageUnavailable | None) -> None:
        """Take one result."""
        self._error = error or self._error
        self._left -= 1
        if not self._left:
            self._on_done(self._error)
