"""Following of other nodes' changes of metadata, while there are other nodes.

On PostgreSQL each write notifies; a poll, once a second, makes up for what was lost. On SQLite,
which the nodes of one host share, there is the poll alone. A node reports the revision that it
has seen, and a node that has made a change waits for the reports of all others, for a bounded
time. A node on its own does none of this.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import import_module
from typing import Any, Final, Protocol

import structlog

from gateway.errors import GatewayError
from gateway.metadata.store import MetadataStore
from gateway.placement import Placement
from gateway.sql.engines import listen_parameters

POLL_S: Final = 0.1
LISTENING_POLL_S: Final = 1.0
"""Poll of a node that listens for notifications."""
NODES_WAIT_S_MAX: Final = 0.5
"""Bound on the wait of a change until the other nodes have it."""
REPORTS_POLL_S: Final = 0.02
RETRY_S: Final = 1.0  # after an error

log = structlog.get_logger()


class Shards(Protocol):
    """Life cycle of shards, as this uses it: see ``gateway.shard_lifecycle``."""

    before_open: Callable[[], Awaitable[None]] | None


class MetadataFollower:
    """See the module. Loop only."""

    def __init__(
        self,
        metadata: MetadataStore,
        placement: Placement,
        shards: Shards,
        *,
        listen_parameters: dict[str, Any] | None = None,
    ) -> None:
        """``listen_parameters``: of a connection to PostgreSQL; None: it polls.

        ``shards`` read what has changed before they open state, which depends on topics.
        """
        self._metadata = metadata
        self._placement = placement
        self._shards = shards
        self._listen_parameters = listen_parameters
        self._poll_s = POLL_S if listen_parameters is None else LISTENING_POLL_S
        self._woken = asyncio.Event()
        self._reported = asyncio.Event()
        self._reports: dict[int, int] = {}
        self._reports_read_s = 0.0
        self._reports_turn = asyncio.Lock()
        self._has_begun = self._is_stopped = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Follow from the time on when there are other nodes."""
        self._placement.on_change.append(self._begin)
        self._begin(())

    async def stop(self) -> None:
        """Stop following."""
        self._is_stopped = True
        self._placement.on_change.remove(self._begin)
        self._metadata.feed.wait_for_nodes = None
        self._shards.before_open = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, _shards: Collection[int]) -> None:
        if self._has_begun or len(self._placement.nodes()) == 1:
            return
        self._has_begun = True
        feed = self._metadata.feed
        feed.wait_for_nodes = self._wait_for_nodes
        self._shards.before_open = feed.catch_up
        self._spawn(self._follow)
        if self._listen_parameters is not None:
            # By name: psycopg is loaded where it is used only.
            listen = import_module("gateway.metadata.notifications").listen
            on_change, on_seen = self._woken.set, self._on_seen
            self._spawn(
                partial(listen, self._listen_parameters, on_change=on_change, on_seen=on_seen)
            )

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run work without end; a bug in it goes to the loop's exception handler."""
        if self._is_stopped:
            return
        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, work))

    def _ended(
        self, work: Callable[[], Coroutine[Any, Any, None]], task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        bug = None if task.cancelled() else task.exception()
        if bug is not None:
            asyncio.get_running_loop().call_later(RETRY_S, self._spawn, work)
            raise bug

    async def _follow(self) -> None:
        feed = self._metadata.feed
        reported = -1
        while True:
            self._woken.clear()
            try:
                await feed.catch_up()
                if feed.seen != reported:
                    await self._metadata.report_seen(self._placement.node_id, feed.seen)
                    reported = feed.seen
            except GatewayError as error:
                log.warning("changes of metadata not read", error=str(error))
                await asyncio.sleep(RETRY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._woken.wait()

    # --- reports of the others

    def _on_seen(self, node_id: int, revision: int) -> None:
        if revision > self._reports.get(node_id, -1):
            self._reports[node_id] = revision
            reported, self._reported = self._reported, asyncio.Event()
            reported.set()

    async def _wait_for_nodes(self, revision: int) -> None:
        """See ``ChangeFeed.wait_for_nodes``."""
        with suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(NODES_WAIT_S_MAX):
                while not self._have_seen(revision):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(REPORTS_POLL_S):
                            await self._reported.wait()
                            continue
                    await self._read_reports()

    def _have_seen(self, revision: int) -> bool:
        return all(
            self._reports.get(node.node_id, -1) >= revision
            for node in self._placement.nodes()
            if node.node_id != self._placement.node_id
        )

    async def _read_reports(self) -> None:
        """Read the stored reports; all who wait share one read."""
        async with self._reports_turn:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._reports_read_s >= REPORTS_POLL_S:
                for node_id, revision in (await self._metadata.seen_revisions()).items():
                    self._on_seen(node_id, revision)
                self._reports_read_s = now_s


def follow_metadata(
    metadata: MetadataStore,
    url: str,
    placement: Placement,
    shards: Shards,
    stack: AsyncExitStack,
) -> None:
    """Follow the store of a URL until the stack ends, once all managers have loaded their rows."""
    parameters = listen_parameters(url)
    follower = MetadataFollower(metadata, placement, shards, listen_parameters=parameters)
    follower.start()
    stack.push_async_callback(follower.stop)
