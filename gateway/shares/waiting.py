"""Fetches that wait for messages of a partition, in order of arrival."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from gateway.queues.lanes import QueueLane

OnReady = Callable[[], None]


class LaneWaiters:
    """Fetches that wait for one lane. A fetch is called once, and may then wait again."""

    __slots__ = ("_is_scheduled", "_lane", "_loop", "_waiting")

    def __init__(self, lane: QueueLane, loop: asyncio.AbstractEventLoop) -> None:
        self._lane = lane
        self._loop = loop
        self._waiting: OrderedDict[OnReady, None] = OrderedDict()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, on_ready: OnReady) -> None:
        """Call ``on_ready`` when there may be messages."""
        self._waiting[on_ready] = None
        self._lane.on_wake = self._wake

    def discard(self, on_ready: OnReady) -> None:
        """Stop waiting."""
        self._waiting.pop(on_ready, None)
        if not self._waiting:
            self._lane.on_wake = None

    def _wake(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Call the fetches that wait, one by one, until one finds nothing."""
        self._is_scheduled = False
        for _ in range(len(self._waiting)):
            if not self._waiting or not self._lane.lane.ready(1):
                return
            on_ready = next(iter(self._waiting))
            self.discard(on_ready)
            on_ready()
            if on_ready in self._waiting:
                return
