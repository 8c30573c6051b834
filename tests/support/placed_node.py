"""A whole node in a thread of the test's process, whose shards the test gives away."""

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self, TypeVar
from unittest.mock import patch

from gateway import main
from gateway.config.loader import load_settings
from gateway.kernel import Kernel
from gateway.testing.placement import SettablePlacement
from gateway.testing.ports import free_port

STARTED_WITHIN_S: Final = 120.0
SHARDS: Final = 64

Result = TypeVar("Result")


class _Node(main._Node):
    """Node that keeps its kernel for the test."""

    kernel: Kernel | None = None

    async def _start_adapters(self, kernel: Kernel, stack: AsyncExitStack) -> None:
        self.kernel = kernel
        await super()._start_adapters(kernel, stack)


class PlacedNode:
    """A node with some adapters, on free ports of 127.0.0.1.

    It has 64 shards, all of them at first unless ``away`` says otherwise.
    """

    def __init__(
        self,
        data_dir: Path,
        adapters: Sequence[str],
        settings: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | None = None,
        *,
        queues: Sequence[str] = (),
        away: Collection[int] = (),
    ) -> None:
        """Make a node that ``with`` starts.

        ``topics``: the partition counts of topics that the config declares, by name. ``queues``:
        names of queues that it declares. ``away``: shards of the other node from the start on.
        """
        self.ports = {name: free_port() for name in adapters}
        self.admin_port = free_port()
        self.placement = SettablePlacement(SHARDS, epoch=5)
        self.placement.give(away)
        assignments = {
            "node.data_dir": data_dir,
            "admin.bind": f"127.0.0.1:{self.admin_port}",
            **{
                f"adapters.{name}.bind": f"127.0.0.1:{port}"
                for name, port in self.ports.items()
            },
            **(settings or {}),
        }
        file = data_dir.with_name(f"{data_dir.name}.toml")
        lines = [f"[adapters.{name}]" for name in adapters]
        for name, partitions in (topics or {}).items():
            lines += ["[[topics]]", f'name = "{name}"', f"partitions = {partitions}"]
        for name in queues:
            lines += ["[[queues]]", f'name = "{name}"']
        file.write_text("\n".join(lines))
        self._settings = load_settings(
            file=file, assignments=[f"{key}={value}" for key, value in assignments.items()]
        )
        self._thread = threading.Thread(target=self._run, name="node")
        self._started: Future[Kernel] = Future()
        self.kernel: Kernel
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    def __enter__(self) -> Self:
        self._thread.start()
        self.kernel = self._started.result(STARTED_WITHIN_S)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` on the node's loop; return its result."""

        async def run() -> Result:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(STARTED_WITHIN_S)

    def give_half(self) -> None:
        """Give the upper half of the shards to the other node."""
        self.call(lambda: self.placement.give(range(SHARDS // 2, SHARDS)))

    def take_half(self) -> None:
        """Take them back."""
        self.call(lambda: self.placement.take(range(SHARDS // 2, SHARDS)))
        self.settle()

    def settle(self) -> None:
        """Wait until the node has closed and opened what it gave and took."""
        shards = self.kernel.broker.shards
        asyncio.run_coroutine_threadsafe(shards.settled(), self._loop).result(STARTED_WITHIN_S)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        node = _Node(self._settings)
        try:
            async with AsyncExitStack() as stack:
                with patch.object(main, "SingleNode", lambda *_args, **_keys: self.placement):
                    await node._start(stack)
                assert node.kernel is not None
                self._started.set_result(node.kernel)
                await self._stop.wait()
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise
