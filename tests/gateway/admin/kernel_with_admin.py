"""A kernel with its admin endpoint in front, and a client that has the token."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gateway.admin.server import AdminServer
from gateway.admin.state import AdminState
from gateway.cli.admin_client import AdminClient
from gateway.cli.settings import client_of
from gateway.config.base import FrozenConfig
from gateway.config.loader import load_settings
from gateway.config.settings import Settings
from gateway.kernel import Endpoint, Kernel
from gateway.main import _Node
from gateway.metrics import Metrics


class Adapter:
    """Adapter that does nothing."""

    def __init__(self, config: FrozenConfig, kernel: Kernel) -> None: ...

    async def start(self) -> None: ...

    async def drain(self, seconds_max: float) -> None: ...

    async def stop(self) -> None: ...

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("tiny", "tcp://127.0.0.1:7", "nc 127.0.0.1 7")]

    def connections(self) -> list[dict[str, Any]]:
        return [{"peer": "127.0.0.1:5", "client_id": "tester"}]


class Setup(NamedTuple):
    """A listening admin endpoint, the kernel behind it, and a client with the token."""

    server: AdminServer
    state: AdminState
    kernel: Kernel
    client: AdminClient
    data_dir: Path


def settings_for(data_dir: Path, *assignments: str) -> Settings:
    """Return settings of a node without adapters' ports."""
    return load_settings(
        assignments=[f"node.data_dir={data_dir}", "admin.bind=127.0.0.1:0", *assignments]
    )


@asynccontextmanager
async def running_admin(data_dir: Path, *assignments: str) -> AsyncIterator[Setup]:
    """Run a kernel and its admin endpoint; no adapter listens."""
    settings = settings_for(data_dir, *assignments)
    async with AsyncExitStack() as stack:
        node = _Node(settings)
        kernel = await node._start_kernel(node._claimed_storage(), stack)
        adapter = Adapter(FrozenConfig(), kernel)
        state = AdminState(metrics=Metrics(), kernel=kernel, adapters={"tiny": adapter})
        server = AdminServer(settings.admin, state, data_dir=data_dir)
        await server.start()
        stack.push_async_callback(server.stop)
        state.is_ready = True
        yield Setup(server, state, kernel, client_of(settings), data_dir)
