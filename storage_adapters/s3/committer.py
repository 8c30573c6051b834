"""Commits of index changes, one at a time, in a thread; retried while the database is away.

A change whose COMMIT was not answered is looked up before it is repeated or reported as done.
Object numbers are reserved with other changes, so that a PUT waits for no transaction of its own.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from gateway.errors import StorageUnavailable, as_value
from storage_adapters.s3.change import Change
from storage_adapters.s3.index import (
    Fenced,
    Index,
    IndexUnavailable,
    OutcomeUnknown,
    PendingLost,
)
from storage_adapters.s3.index_thread import IndexThread

PAUSE_MS_MIN: Final = 20
PAUSE_MS_MAX: Final = 1_000

_NOTHING: Final = Change()

_T = TypeVar("_T")
_log = structlog.get_logger()


class Committer:
    """Committer of index changes. Loop only. ``on_fault`` is called once, at a take-over say."""

    def __init__(
        self,
        index: Index,
        *,
        epoch: int,
        reserved: list[int],
        reserve: int,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self.epoch = epoch
        self.fault: StorageUnavailable | None = None
        self.transactions = 0
        self.retries = 0
        self._thread = IndexThread(index, "headgate-index")
        self._on_fault = on_fault
        self._turn = asyncio.Lock()
        self._numbers = deque(reserved)
        self._taken: set[int] = set()
        self._reserve = reserve
        self._takers = 0
        self._closed = asyncio.Event()

    @property
    def numbers_kept(self) -> frozenset[int]:
        """Numbers that are reserved or in use, whose rows must stay."""
        return frozenset(self._numbers) | frozenset(self._taken)

    async def take_number(self) -> int:
        """Return a number for a new object. Errors: ``StorageUnavailable``."""
        self._takers += 1  # so that all waiting callers share one transaction
        try:
            while not self._numbers:
                await self.commit(_NOTHING)
        finally:
            self._takers -= 1
        number = self._numbers.popleft()
        self._taken.add(number)
        return number

    def give_up(self, number: int) -> None:
        """Return an unused number, whose row may be swept."""
        self._taken.discard(number)

    def fail(self, error: StorageUnavailable) -> None:
        """Fail the committer: this node commits nothing any more."""
        if self.fault is None:
            self.fault = error
            self._on_fault(error)

    async def commit(self, change: Change) -> None:
        """Commit ``change``; wait for the database without limit. Errors: ``StorageUnavailable``.

        Raised when another node owns the data, and when the storage is closed meanwhile.
        """
        async with self._turn:
            missing = self._reserve + self._takers - len(self._numbers)
            # Many at a time: a draw of numbers waits for the draws of other writers.
            missing = missing if missing > self._reserve // 2 else 0
            if not missing and change == _NOTHING:
                return
            whole = change._replace(reserve=missing)
            pause_ms = PAUSE_MS_MIN
            tries = 0
            while not await self._try(whole, is_first=not tries):
                tries += 1
                self.retries += 1
                await self._pause(pause_ms)
                pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
            if tries:
                _log.info("the database is back", tries=tries)
            for added in change.added:
                self._taken.discard(added.stored.number)

    async def run(self, work: Callable[[Index], _T]) -> _T:
        """Run other work on the index in its thread, once. Errors: ``StorageUnavailable``.

        ``Fenced`` stops this node, too: otherwise it would continue to answer reads from objects
        that the new owner has merged and deleted.
        """
        try:
            return await self._thread.run(work)
        except Fenced as error:
            self.fail(as_value(error))
            raise

    def close(self) -> None:
        """Begin no more tries; waiting calls raise."""
        self._closed.set()

    def cut(self) -> None:
        """Abandon the running transaction, too; its outcome stays unknown."""
        self.close()
        self._thread.cut()

    async def stop(self) -> None:
        """Close the index and end its thread after the current work."""
        self.close()
        await self._thread.stop()

    async def _try(self, change: Change, *, is_first: bool) -> bool:
        """Try the change; return whether it is done."""
        if self.fault is not None:
            raise self.fault
        try:
            reserved = await self.run(lambda index: index.commit(self.epoch, change))
        except PendingLost as error:
            self.fail(as_value(error))
            raise
        except OutcomeUnknown as error:
            _log.warning("the database went while it committed", error=str(error))
            return await self._was_done(change)
        except IndexUnavailable as error:
            if is_first:
                _log.warning("no commit; it is tried again", error=str(error))
            return False
        self.transactions += 1
        self._numbers.extend(reserved)
        return True

    async def _was_done(self, change: Change) -> bool:
        """Return whether the change was committed; leave numbers that it reserved to be swept."""
        pause_ms = PAUSE_MS_MIN
        while True:
            try:
                return await self.run(lambda index: index.committed(change))
            except IndexUnavailable:
                await self._pause(pause_ms)
                pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    async def _pause(self, pause_ms: int) -> None:
        try:
            await asyncio.wait_for(self._closed.wait(), pause_ms / 1_000)
        except TimeoutError:
            return
        raise StorageUnavailable("the storage was closed before the database was back")
