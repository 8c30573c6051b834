"""Calls of a storage that note when their callbacks run."""

import asyncio
from collections.abc import Callable
from functools import partial

from gateway.errors import StorageUnavailable
from gateway.storage import OnDone, StorageAdapter
from gateway.testing.entries import make_entry


class Calls:
    """Calls of one storage, numbered, and when they were told that they are done.

    ``told_within``: those that were told while a call was being made.
    """

    def __init__(self, storage: StorageAdapter) -> None:
        self.taken_count = 0
        self.told: list[int] = []
        self.told_within: list[int] = []
        self._storage = storage
        self._is_within = False
        self._progress = asyncio.Event()

    def append_many(self, count: int) -> None:
        """Append batches of 20,000 bytes, until one is refused."""
        start = self._storage.bounds(1).end
        for offset in range(start, start + count):
            entry = make_entry((1, offset), size_bytes=20_000)
            if not self.make(partial(self._storage.enqueue, [entry])):
                return

    def make(self, call: Callable[[OnDone], None]) -> bool:
        """Make a call; say whether it was taken."""
        number = self.taken_count
        self._is_within = True
        try:
            call(lambda _: self._note(number))
        except StorageUnavailable:
            return False
        finally:
            self._is_within = False
        self.taken_count += 1
        return True

    def _note(self, number: int) -> None:
        self.told.append(number)
        if self._is_within:
            self.told_within.append(number)
        self._progress.set()

    async def all_told(self) -> None:
        """Wait until all calls that were taken are done, or failed."""
        while len(self.told) < self.taken_count:
            self._progress.clear()
            await self._progress.wait()
