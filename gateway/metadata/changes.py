"""Changes of metadata, made one at a time.

A change is durable in the store first and shows in memory after that. Were it cancelled between
the two, because its caller's connection went away, memory would contradict the store; so it
runs as a task of its own. Loop only.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

from gateway.errors import Overloaded
from gateway.metadata.change_model import ChangeKind, MetadataChanged
from gateway.metadata.feed import ChangeFeed

CHANGES_MAX: Final = 10_000  # that wait for their turn; more are refused
TRIES_MAX: Final = 20  # of a change that other nodes overtake

_T = TypeVar("_T")
_P = ParamSpec("_P")


class Changes:
    """Queue of changes.

    With a ``feed``, a change that another node has overtaken reloads what that has changed, and
    is judged again; and it ends when the live nodes have it (``ChangeFeed.settled``).
    """

    def __init__(self, feed: ChangeFeed | None = None) -> None:
        self._feed = feed
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def make(
        self,
        change: Callable[_P, Coroutine[Any, Any, _T]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Make a change in its turn and return its result. Errors: its own, ``Overloaded``."""
        return await asyncio.shield(self.start(change, *args, **kwargs))

    def start(
        self,
        change: Callable[_P, Coroutine[Any, Any, _T]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> asyncio.Task[_T]:
        """Make a change in its turn; its errors are dropped unless the task is awaited."""
        if len(self._tasks) >= CHANGES_MAX:
            msg = f"{CHANGES_MAX} changes wait for their turn"
            raise Overloaded(msg)
        task = asyncio.get_running_loop().create_task(
            self._run(lambda: change(*args, **kwargs))
        )
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def in_turn(
        self,
        change: Callable[_P, Coroutine[Any, Any, _T]],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Do a part of another change, or reload, in its turn: once, and without waiting for nodes.

        Errors: its own, ``MetadataChanged``.
        """
        async with self._turn:
            return await change(*args, **kwargs)

    def follow(
        self,
        kind: ChangeKind,
        reload: Callable[[frozenset[str] | None], Coroutine[Any, Any, None]],
    ) -> None:
        """Reload what other nodes change of a kind, in turn with the changes made here."""
        assert self._feed is not None
        self._feed.register(kind, lambda keys: self.in_turn(reload, keys))

    async def close(self) -> None:
        """Wait for running changes."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, change: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        if self._feed is None:
            return await self.in_turn(change)
        for _ in range(TRIES_MAX):
            try:
                async with self._turn:
                    before = self._feed.written
                    result = await change()
                    written = self._feed.written
            except MetadataChanged:
                await self._feed.catch_up()
                continue
            if written > before:
                await self._feed.settled(written)
            return result
        msg = f"other nodes have changed metadata {TRIES_MAX} times meanwhile"
        raise Overloaded(msg)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: the caller, who would raise it, may be gone
