"""Two whole nodes in a thread of the test's process, over one storage in memory.

Each has its own kernel, adapters and ports; node 1 is on 127.0.0.1 and node 2 on 127.0.0.2, with
the same ports. They share the stored batches and the metadata, as the nodes of a cluster do, and
call each other. The test moves shards between them.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from unittest.mock import patch

from gateway import main
from gateway.clock import SystemClock
from gateway.config.loader import load_settings
from gateway.kernel import Kernel
from gateway.placement import Node
from gateway.shards.in_process import InProcessLink
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def open(self, host: Any) -> None:
        if self._is_first:
            await self._storage.open(host)

    async def close(self) -> None:
        if self._is_first:
            await self._storage.close()


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

    def __init__(self, folder: Path, adapters: Sequence[str], declared: str) -> None:
        """``declared``: tables of the config file, for topics and queues of both nodes."""
        self.ports = {name: free_port() for name in adapters}
        self._folder = folder
        self._declared = "\n".join([*(f"[adapters.{name}]" for name in adapters), declared])
        first = SettablePlacement(SHARDS, epoch=5, node=_NODES[0], other=_NODES[1])
        second = SettablePlacement(SHARDS, epoch=5, node=_NODES[1], other=_NODES[0])
        second.share_epochs(first)
        second.give(range(SHARDS))
        self.placements = (first, second)
        self.kernels: tuple[Kernel, Kernel]
        self._nodes: list[_Node] = []
        self._thread = threading.Thread(target=self._run, name="nodes")
        self._started: Future[tuple[Kernel, Kernel]] = Future()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self.faults: list[Mapping[str, Any]] = []
        """Exceptions that the nodes' loop has reported."""

    def __enter__(self) -> Self:
        self._thread.start()
        self.kernels = self._started.result(STARTED_WITHIN_S)
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

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self._stop = asyncio.Event()
        config = MemoryStorage.Config(bytes_max=1 << 30, reserve_bytes=0)
        storage = MemoryStorage(config, data_dir=self._folder, clock=SystemClock())
        try:
            async with AsyncExitStack() as stack:
                first = await self._start(stack, storage, 0)
                second = await self._start(stack, storage, 1)
                link = InProcessLink()
                for node, kernel in zip(_NODES, (first, second), strict=True):
                    link.join(node.node_id, kernel.broker.shard_calls)
                    kernel.broker.shard_calls.link = link
                self._started.set_result((first, second))
                await self._stop.wait()
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise

    async def _start(self, stack: AsyncExitStack, storage: MemoryStorage, index: int) -> Kernel:
        node = _Node(self._settings(index))
        node.shared = _SharedStorage(storage, is_first=index == 0)
        self._nodes.append(node)
        placement = self.placements[index]
        with patch.object(main, "SingleNode", lambda *_args, **_keys: placement):
            await node._start(stack)
        return node.kernel

    def _settings(self, index: int) -> Any:
        file = self._folder / f"node-{index}.toml"
        file.write_text(self._declared)
        assignments = {
            "node.data_dir": self._folder / "data",
            "node.node_id": index + 1,
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
