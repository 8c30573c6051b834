"""Two whole nodes in a thread of the test's process, over one storage in memory.

Each has its own kernel, adapters and ports; node 1 is on 127.0.0.1 and node 2 on 127.0.0.2, with
the same ports. They share the stored batches and the metadata, as the nodes of a cluster do, and
call each other. The test moves shards between them.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar, cast
from unittest.mock import patch

from gateway import main
from gateway.clock import SystemClock
from gateway.config.loader import load_settings
from gateway.errors import GatewayError, StorageUnavailable
from gateway.kernel import Kernel
from gateway.placement import Node
from gateway.shards.in_process import InProcessLink
from gateway.storage import Entry, OnDone
from gateway.testing.placement import SettablePlacement
from gateway.testing.ports import free_port
from storage_adapters.memory import MemoryStorage

STARTED_WITHIN_S: Final = 120.0
SHARDS: Final = 64
HOSTS: Final = ("127.0.0.1", "127.0.0.2")
Result = TypeVar("Result")
_NODES: Final = (Node(1, HOSTS[0]), Node(2, HOSTS[1]))


class _SharedStorage:
    """The storage of both nodes, as one of them has it: only the first opens and closes it."""

    def __init__(self, storage: MemoryStorage, *, is_first: bool) -> None:
        self._storage = storage
        self._is_first = is_first
        self._is_dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        if self._is_dead:
            raise StorageUnavailable("the node was killed")
        self._storage.enqueue(entries, partial(self._done, on_done), reserved=reserved)

    def _done(self, on_done: OnDone, error: StorageUnavailable | None) -> None:
        on_done(StorageUnavailable("the node was killed") if self._is_dead else error)

    def die(self) -> None:
        """Refuse all appends; what was on its way is stored, and the node is not told so."""
        self._is_dead, self._is_first = True, False

    async def open(self, host: Any) -> None:
        if self._is_first:
            await self._storage.open(host)

    async def close(self) -> None:
        if self._is_first:
            await self._storage.close()


def _abort(connections: Collection[Any]) -> None:
    for connection in tuple(connections):
        connection.transport.abort()


class _Node(main._Node):
    """Node over a given storage, that keeps its kernel for the test."""

    kernel: Kernel
    shared: _SharedStorage

    def _claimed_storage(self) -> Any:
        return self.shared

    async def _start_adapters(self, kernel: Kernel, stack: AsyncExitStack) -> None:
        self.kernel = kernel
        await super()._start_adapters(kernel, stack)


class TwoNodes:
    """Two nodes with the same adapters. Node 0 of the lists has all shards at first."""

    def __init__(
        self,
        folder: Path,
        adapters: Sequence[str],
        declared: str,
        *,
        metadata_url: str = "sqlite",
    ) -> None:
        """``declared``: tables of the config file, for topics and queues of both nodes.

        ``metadata_url``: of a database that is empty.
        """
        self._metadata_url = metadata_url
        self.ports = {name: free_port() for name in adapters}
        self._folder = folder
        self._declared = "\n".join([*(f"[adapters.{name}]" for name in adapters), declared])
        first = SettablePlacement(SHARDS, epoch=5, node=_NODES[0], other=_NODES[1])
        second = SettablePlacement(SHARDS, epoch=5, node=_NODES[1], other=_NODES[0])
        second.share_epochs(first)
        second.give(range(SHARDS))
        self.placements = [first, second]
        self.kernels: list[Kernel]
        self._nodes: list[_Node]
        self._stacks = [AsyncExitStack(), AsyncExitStack()]
        self._thread = threading.Thread(target=self._run, name="nodes")
        self._started: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self.faults: list[Mapping[str, Any]] = []
        """Exceptions that the nodes' loop has reported."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result(STARTED_WITHIN_S)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` on the nodes' loop; return its result."""

        async def run() -> Result:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(STARTED_WITHIN_S)

    def adapter(self, index: int, name: str) -> Any:
        """Return an adapter of a node."""
        return self._nodes[index]._adapters[name]

    def move(self, shards: Collection[int], *, to: int) -> None:
        """Move shards to a node; return when it serves them."""
        work = self._move(shards, to)
        asyncio.run_coroutine_threadsafe(work, self._loop).result(STARTED_WITHIN_S)

    def move_all(self, *, to: int) -> None:
        """Move all shards that the other node owns."""
        source = self.placements[1 - to]
        self.move([shard for shard in range(SHARDS) if source.owns(shard)], to=to)

    async def _move(self, shards: Collection[int], to: int) -> None:
        source, target = self.kernels[1 - to], self.kernels[to]
        self.placements[1 - to].give(shards)
        await source.broker.shards.settled()
        self.placements[to].take(shards)
        await target.broker.shards.settled()
        assert all(map(target.broker.shards.is_open, shards))

    def kill(self, index: int) -> None:
        """Kill a node: its clients lose their connections, and the other has all shards."""
        work = self._kill(index)
        asyncio.run_coroutine_threadsafe(work, self._loop).result(STARTED_WITHIN_S)

    async def _kill(self, index: int) -> None:
        node, survivor = self._nodes[index], 1 - index
        node.shared.die()
        self._link.leave(_NODES[index].node_id)
        adapters: Any = node._adapters.values()
        listeners = [one for adapter in adapters for one in adapter.listeners]
        for listener in listeners:
            listener._server.close()
            _abort(listener.connections)
        with suppress(GatewayError):  # what a stop would write is refused
            await self._stacks[index].aclose()
        for listener in listeners:  # which were accepted meanwhile
            _abort(listener.connections)
        lost = [one for one in range(SHARDS) if not self.placements[survivor].owns(one)]
        self.placements[survivor].take(lost)
        await self.kernels[survivor].broker.shards.settled()

    def restart(self, index: int) -> None:
        """Start a node that was killed; it owns nothing until shards are moved to it."""
        work = self._restart(index)
        asyncio.run_coroutine_threadsafe(work, self._loop).result(STARTED_WITHIN_S)

    async def _restart(self, index: int) -> None:
        other = self.placements[1 - index]
        placement = SettablePlacement(SHARDS, node=_NODES[index], other=_NODES[1 - index])
        placement._owners = [_NODES[1 - index]] * SHARDS
        placement.share_epochs(other)
        self.placements[index] = placement
        await self._start(self._nodes[index].shared._storage, index)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self._stop = asyncio.Event()
        config = MemoryStorage.Config(bytes_max=1 << 30, reserve_bytes=0)
        storage = MemoryStorage(config, data_dir=self._folder, clock=SystemClock())
        self._link = InProcessLink()
        self._nodes, self.kernels = cast("Any", [None, None]), cast("Any", [None, None])
        try:
            async with AsyncExitStack() as stack:
                for index in (0, 1):
                    stack.push_async_callback(self._close, index)
                    await self._start(storage, index)
                self._started.set_result(None)
                await self._stop.wait()
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise

    async def _close(self, index: int) -> None:
        await self._stacks[index].aclose()

    async def _start(self, storage: MemoryStorage, index: int) -> None:
        node = self._nodes[index] = _Node(self._settings(index))
        stack = self._stacks[index] = AsyncExitStack()
        node.shared = _SharedStorage(storage, is_first=not storage.incarnation)
        placement = self.placements[index]
        with patch.object(main, "SingleNode", lambda *_args, **_keys: placement):
            await node._start(stack)
        self.kernels[index] = node.kernel
        node.kernel.broker.shard_calls.link = self._link
        self._link.join(_NODES[index].node_id, node.kernel.broker.shard_calls)

    def _settings(self, index: int) -> Any:
        file = self._folder / f"node-{index}.toml"
        file.write_text(self._declared)
        assignments = {
            "node.data_dir": self._folder / "data",
            "node.node_id": index + 1,
            "metadata.url": self._metadata_url,
            "storage.adapter": "memory",
            "admin.bind": f"{HOSTS[index]}:{free_port()}",
            **{
                f"adapters.{name}.bind": f"{HOSTS[index]}:{port}"
                for name, port in self.ports.items()
            },
        }
        if "mqtt" in self.ports:
            assignments["adapters.mqtt.websocket.enabled"] = "false"
            assignments["adapters.mqtt.sys_interval_s"] = 0
        return load_settings(
            file=file, assignments=[f"{key}={value}" for key, value in assignments.items()]
        )
