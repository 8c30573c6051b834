"""A running RocketMQ adapter with real sockets, on storage whose writes a test can hold."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from adapters.rocketmq.config import RocketMqConfig
from adapters.rocketmq.remoting.client import OnRequest, RemotingClient, Sign
from adapters.rocketmq.remoting.message_codec import StoredMessage, decode_messages
from adapters.rocketmq.remoting.wire import Command, RequestCode, Serialization
from adapters.rocketmq.server import RocketMqAdapter
from gateway.clock import ManualClock
from gateway.config.base import Address
from gateway.config.settings import NodeConfig, Settings, TopicDefaults
from gateway.groups.cursors import CursorManager
from gateway.groups.manager import GroupManager
from gateway.kernel import Kernel
from gateway.leaser import Leaser
from gateway.model import TopicName
from tests.support.held_storage import HeldStorage
from tests.support.live_kernel import running_kernel

BORN_UNIX_MS = 1_700_000_000_000


class RunningRocketMq:
    """A running adapter, its parts, and the clients of one test."""

    def __init__(
        self,
        adapter: RocketMqAdapter,
        kernel: Kernel,
        storage: HeldStorage,
        clock: ManualClock,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self.adapter = adapter
        self.node = adapter.node
        self.kernel = kernel
        self.storage = storage
        self.clock = clock
        self._stack = stack

    async def client(
        self,
        *,
        on_request: OnRequest | None = None,
        serialization: Serialization = Serialization.JSON,
        sign: Sign | None = None,
        address: Address | None = None,
    ) -> RemotingClient:
        """Return a client of the broker, or of another address."""
        client = await RemotingClient.connect(
            address or self.adapter.broker_address,
            on_request=on_request,
            serialization=serialization,
            sign=sign,
        )
        return await self._stack.enter_async_context(client)

    async def nameserver_client(self, sign: Sign | None = None) -> RemotingClient:
        """Return a client of the name server."""
        return await self.client(address=self.adapter.nameserver_address, sign=sign)

    async def topic(self, name: str, queues: int = 1, **configs: str) -> None:
        """Make a topic."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        await self.kernel.topics.create(
            TopicName("default", name), partitions=queues, configs=named
        )


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    *,
    users: Mapping[str, str] | None = None,
    auto_create: bool = True,
    **config: Any,
) -> AsyncIterator[RunningRocketMq]:
    """Run an adapter until the block ends."""
    settings = Settings(
        node=NodeConfig(data_dir=folder), topic_defaults=TopicDefaults(auto_create=auto_create)
    )
    clock = ManualClock()
    async with contextlib.AsyncExitStack() as stack:
        kernel, storage = await stack.enter_async_context(
            running_kernel(settings, clock, users=users or {})
        )
        groups_config = settings.groups
        cursors = await CursorManager.open(kernel.broker, kernel.topics, clock, groups_config)
        groups = await GroupManager.open(
            kernel.broker, kernel.topics, cursors, clock, groups_config
        )
        leaser = Leaser(clock)
        for close in (cursors.close, groups.close, leaser.close):
            stack.callback(close)
        kernel = replace(kernel, cursors=cursors, groups=groups, leaser=leaser)
        checked = RocketMqConfig.model_validate(
            {"bind": "127.0.0.1:0", "nameserver": {"bind": "127.0.0.1:0"}, **config}
        )
        adapter = RocketMqAdapter(checked, kernel)
        await adapter.start()
        stack.push_async_callback(adapter.stop)
        stack.callback(storage.release)
        yield RunningRocketMq(adapter, kernel, storage, clock, stack)


def send_fields(topic: str, properties: str = "", **changed: Any) -> dict[str, str]:
    """Return the fields of SEND_MESSAGE_V2; ``changed`` by letter."""
    fields = {
        "a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": BORN_UNIX_MS,
        "h": 0, "i": properties, "j": 0, "k": "false", "m": "false", **changed,
    }  # fmt: skip
    return {name: str(value) for name, value in fields.items()}


def pull_fields(topic: str, offset: int, **changed: Any) -> dict[str, str]:
    """Return the fields of PULL_MESSAGE that brings its subscription, and does not wait."""
    fields = {
        "consumerGroup": "group", "topic": topic, "queueId": 0, "queueOffset": offset,
        "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
        "subscription": "*", "subVersion": 0, "expressionType": "TAG", **changed,
    }  # fmt: skip
    return {name: str(value) for name, value in fields.items()}


def json_of(response: Command) -> Any:
    """Return the JSON body of a response."""
    return json.loads(bytes(response.body))


async def send(
    client: RemotingClient, topic: str, body: bytes, properties: str = "", **changed: Any
) -> Command:
    """Send a message by SEND_MESSAGE_V2, and return the response."""
    fields = send_fields(topic, properties, **changed)
    return await client.call(RequestCode.SEND_MESSAGE_V2, fields, body)


async def pull(
    client: RemotingClient, topic: str, offset: int, **changed: Any
) -> tuple[Command, list[StoredMessage]]:
    """Pull messages, and return the response and its messages."""
    fields = pull_fields(topic, offset, **changed)
    response = await client.call(RequestCode.PULL_MESSAGE, fields)
    return response, decode_messages(response.body)
