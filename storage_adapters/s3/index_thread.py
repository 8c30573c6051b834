"""Index with its one thread, which runs one query at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from gateway.errors import StorageUnavailable
from storage_adapters.s3.index import Index

_STOPPED: Final = "the storage is closed"

_T = TypeVar("_T")


class IndexThread:
    """Executor of index queries. Loop only. ``name``: the thread's. The index bounds each query."""

    def __init__(self, index: Index, name: str) -> None:
        self._index = index
        self._executor = ThreadPoolExecutor(1, name)
        self._is_stopped = False

    async def run(self, work: Callable[[Index], _T]) -> _T:
        """Run ``work`` once. Errors: its own, ``StorageUnavailable``."""
        if self._is_stopped:
            raise StorageUnavailable(_STOPPED)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, work, self._index)

    def cut(self) -> None:
        """Make the current query and all later ones fail."""
        self._index.cut()

    async def stop(self) -> None:
        """Close the index and end the thread after the current query."""
        await self.run(Index.close)
        self._is_stopped = True
        self._executor.shutdown(wait=True)
