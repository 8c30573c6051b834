"""Changes of metadata, made one at a time.

A change is durable in the store first and shows in memory after that. Were it cancelled between
the two, because its caller's connection went away, memory would contradict the store; so it
runs as a task of its own. Loop only.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from gateway.errors import Overloaded

CHANGES_MAX: Final = 10_000  # that wait for their turn; more are refused

_T = TypeVar("_T")


class Changes:
    """Queue of changes."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def make(self, change: Coroutine[Any, Any, _T]) -> _T:
        """Make a change in its turn and return its result. Errors: its own, ``Overloaded``."""
        return await asyncio.shield(self.start(change))

    def start(self, change: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Make a change in its turn; its errors are dropped unless the task is awaited."""
        if len(self._tasks) >= CHANGES_MAX:
            change.close()
            msg = f"{CHANGES_MAX} changes wait for their turn"
            raise Overloaded(msg)
        task = asyncio.get_running_loop().create_task(self._in_turn(change))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Wait for running changes."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _in_turn(self, change: Coroutine[Any, Any, _T]) -> _T:
        async with self._turn:
            return await change

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: the caller, who would raise it, may be gone
