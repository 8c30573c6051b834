"""Life cycle of shards: state is opened, quiesced and closed by shard while the node runs.

State that is loaded into memory registers here, in the order in which it opens. When shards leave,
the following happens, with each step done for all state before the next one begins:

1. while the node still owns them, ``quiesce_shards``, in the reverse order; then all coalescers
   append what is open;
2. the owner changes: from this turn of the loop on, requests are refused;
3. when appends that were under way are done, ``close_shards``, in the reverse order.

Shards that come are opened by ``load_shards``, in order; until all state of a shard is open, it is
``loading``, and requests are refused. One task does step 3 and the opening, so a shard that leaves
and comes back at once is closed before it is opened again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol

import structlog

from gateway.errors import GatewayError, NotLeader
from gateway.placement import OnShards, Placement
from gateway.storage import OnDone

RETRY_S: Final = 1.0

log = structlog.get_logger()


class ShardState(Protocol):
    """State in memory that belongs to shards. All calls come on the event loop."""

    @property
    def open_shards(self) -> Collection[int]:
        """Numbers of the shards that are open."""
        ...

    def quiesce_shards(self, shards: Collection[int]) -> None:
        """Give to coalescers what is only in memory; the node still owns the shards.

        It does not wait and does not raise.
        """
        ...

    def close_shards(self, shards: Collection[int]) -> None:
        """Drop the state of shards; no append for them is under way.

        Shards that are not open, or only in part, are no error. It does not raise.
        """
        ...

    async def load_shards(self, shards: Collection[int]) -> None:
        """Read the state of shards, which are closed, and serve it.

        Errors: ``StorageUnavailable``, ``CorruptBatch``; ``NotLeader`` when one has left again
        meanwhile. ``close_shards`` follows an error.
        """
        ...


class ShardLifecycle:
    """Carries out changes of owners for all state that is registered."""

    def __init__(self, placement: Placement, after_pending: Callable[[OnDone], None]) -> None:
        """``after_pending``: as ``Broker.after_pending``.

        It is made before any coalescer, so that ``before_release`` calls it first.
        """
        self._placement = placement
        self._after_pending = after_pending
        self._loop = asyncio.get_running_loop()
        self._states: list[ShardState] = []
        self._left: set[int] = set()
        self._served = set(self.owned())
        self.loading: set[int] = set()
        """Shards of this node that are not served yet, from the turn on in which they came."""
        self.on_open: list[OnShards] = []
        """Called with shards whose state is open, in the turn from which on they are served."""
        self.before_open: Callable[[], Awaitable[None]] | None = None
        """Awaited before shards are opened. Errors: ``GatewayError``, after which it is retried."""
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False
        placement.before_release.append(self._quiesce)
        placement.on_change.append(self._follow)

    def register(self, state: ShardState) -> None:
        """Add state that has opened the node's shards; what it builds on is registered before."""
        self._states.append(state)
        self._wake()

    def unregister(self, state: ShardState) -> None:
        """Forget state that has been closed as a whole."""
        if state in self._states:
            self._states.remove(state)

    @property
    def shard_count(self) -> int:
        """Number of shards of the cluster."""
        return self._placement.shard_count

    def owned(self) -> list[int]:
        """Return the shards that this node owns, in ascending order."""
        placement = self._placement
        return [shard for shard in range(placement.shard_count) if placement.owns(shard)]

    def is_open(self, shard: int) -> bool:
        """Return whether the node serves a shard: it owns it, and all state of it is open."""
        return shard in self._served

    @property
    def serves_all(self) -> bool:
        """Whether the node serves every shard of the cluster."""
        return len(self._served) == self.shard_count

    async def settled(self) -> None:
        """Return when all changes so far are carried out.

        Then another node may open the shards that have left, and the node serves those that came.
        """
        while self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Stop to follow changes; for a node that stops."""
        self._is_closed = True
        self._placement.before_release.remove(self._quiesce)
        self._placement.on_change.remove(self._follow)
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            self._task.cancel()

    # --- following the placement

    def _quiesce(self, shards: Collection[int]) -> None:
        for state in reversed(self._states):
            state.quiesce_shards(shards)

    def _follow(self, shards: Collection[int]) -> None:
        for shard in shards:
            if not self._placement.owns(shard):
                self._left.add(shard)
                self._served.discard(shard)
                self.loading.discard(shard)
            elif shard not in self._served:
                self.loading.add(shard)
        self._wake()

    def _try_again(self) -> None:
        self._retry = None
        self._wake()

    def _wake(self) -> None:
        if self._task is None and self._has_work() and not self._is_closed:
            self._task = self._loop.create_task(self._run())
            self._task.add_done_callback(self._ended)

    def _has_work(self) -> bool:
        return bool(self._left or self.loading) or any(map(self._missing, self._states))

    def _missing(self, state: ShardState) -> set[int]:
        return set(self.owned()).difference(state.open_shards, self._left)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        bug = task.exception()
        if bug is not None:  # it goes to the loop's exception handler
            self._retry = self._loop.call_later(RETRY_S, self._try_again)
            raise bug
        if self._retry is None:
            self._wake()  # shards may have come after its last look

    async def _run(self) -> None:
        while self._has_work():
            await self._close_left()
            try:
                if self.before_open is not None and self.loading:
                    await self.before_open()
                for state in list(self._states):
                    await self._open_missing(state)
                self._serve()
            except GatewayError as error:
                if self._left:
                    continue
                log.warning("shards are not opened", error=str(error))
                self._retry = self._loop.call_later(RETRY_S, self._try_again)
                return

    async def _close_left(self) -> None:
        left, self._left = self._left, set()
        if not left:
            return
        done = asyncio.Event()
        self._after_pending(lambda _error: done.set())
        await done.wait()
        for state in reversed(self._states):
            state.close_shards(left)

    def _serve(self) -> None:
        """Serve the shards whose state is open; some may have left, or come, meanwhile."""
        opened = [
            shard
            for shard in sorted(self.loading.difference(self._left))
            if all(shard in state.open_shards for state in self._states)
        ]
        if opened:
            self.loading.difference_update(opened)
            self._served.update(opened)
            for follow in self.on_open:
                follow(opened)

    async def _open_missing(self, state: ShardState) -> None:
        missing = self._missing(state)
        if not missing:
            return
        try:
            await state.load_shards(sorted(missing))
        except GatewayError as error:
            state.close_shards(missing)
            if isinstance(error, NotLeader):
                log.info("shards left while they were opened", shards=sorted(missing))
            raise
