"""The kernel under an adapter that runs in the test's process, on a storage that can be held."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, cast

from gateway.auth.access_keys import AccessKeys
from gateway.auth.login_policy import LoginPolicy
from gateway.auth.rules import RuleBook
from gateway.auth.scram import ITERATIONS_MIN, ScramMechanism
from gateway.auth.users import StoredUsers
from gateway.broker import Broker
from gateway.clock import ManualClock
from gateway.config.auth import AuthRule
from gateway.config.settings import Settings
from gateway.contributions import Contributions
from gateway.delays.sharded import ShardedDelays
from gateway.kernel import Kernel
from gateway.metadata.sql import SqlMetadata
from gateway.metrics import Metrics
from gateway.placement import Placement, SingleNode
from gateway.queues.manager import QueueManager
from gateway.quotas.manager import Quotas
from gateway.shard_moves import follow_owners
from gateway.topics.manager import TopicManager
from gateway.upkeep.scrub import Scrub
from tests.support.held_storage import HeldStorage
from tests.support.storage_host import TopicsHost

CHEAP: Mapping[ScramMechanism, int] = MappingProxyType(
    dict.fromkeys(ScramMechanism, ITERATIONS_MIN)
)
"""Rounds of PBKDF2 for the passwords of tests."""
NO_USERS: Mapping[str, str] = MappingProxyType({})


class LiveKernel(NamedTuple):
    """A kernel without consumer groups, and the storage below it."""

    kernel: Kernel
    storage: HeldStorage


@contextlib.asynccontextmanager
async def running_kernel(
    settings: Settings,
    clock: ManualClock,
    *,
    users: Mapping[str, str] = NO_USERS,
    rules: tuple[AuthRule, ...] = (),
    default: Literal["allow", "deny"] = "allow",
    has_queues: bool = False,
    placement: Placement | None = None,
    contributions: Contributions | None = None,
) -> AsyncIterator[LiveKernel]:
    """Run the parts. At the end nothing is held any more.

    ``users`` are passwords by name; with some, login is required. ``default``: ``auth.default``.
    """
    folder = settings.node.data_dir
    async with contextlib.AsyncExitStack() as stack:
        metadata = SqlMetadata("sqlite", data_dir=folder)
        await metadata.open()
        stack.push_async_callback(metadata.close)
        stored = await _stored_users(metadata, users, stack)
        book = RuleBook(metadata, stored, static_rules=rules, default=default)
        await book.load()
        stack.push_async_callback(book.close)
        keys = AccessKeys(metadata)
        await keys.load()
        stored.on_removed.append(keys.forget_user)
        keys.on_change.append(book.forget_answers)
        stack.push_async_callback(keys.close)
        contributions = contributions or Contributions()
        topics = TopicManager(
            metadata,
            defaults=settings.topic_defaults,
            clock=clock,
            contributions=contributions,
        )
        await topics.load()
        stack.push_async_callback(topics.close)
        storage = HeldStorage(HeldStorage.Config(), data_dir=folder, clock=clock)
        host = TopicsHost()
        host.topics = topics
        await storage.open(host)
        stack.push_async_callback(storage.close)
        placement = placement or SingleNode(1, node_id=1, cluster_id="cluster-of-one-node-22")
        broker = Broker(storage, placement, clock, settings.broker)
        follow_owners(broker, topics)
        delays = await ShardedDelays.open(broker, topics, clock, settings.delay)
        stack.callback(delays.close)
        queues = cast("Any", None)
        if has_queues:
            queues = await QueueManager.open(broker, topics, clock, metadata, settings.queue)
            stack.push_async_callback(queues.close)
        quotas = Quotas(metadata, clock)
        await quotas.load()
        stack.push_async_callback(quotas.close)
        stack.callback(storage.release)
        kernel = Kernel(
            settings=settings,
            clock=clock,
            broker=broker,
            topics=topics,
            groups=cast("Any", None),
            cursors=cast("Any", None),
            transactions=cast("Any", None),
            queues=queues,
            publisher=cast("Any", None),
            leaser=cast("Any", None),
            delays=delays,
            authenticator=stored,
            authorizer=book,
            access_keys=keys,
            placement=placement,
            metadata=metadata,
            metrics=Metrics(),
            scrub=Scrub(topics, broker, 0),
            quotas=quotas,
            contributions=contributions,
        )
        delays.start()
        yield LiveKernel(kernel, storage)


async def _stored_users(
    metadata: SqlMetadata, users: Mapping[str, str], stack: contextlib.AsyncExitStack
) -> StoredUsers:
    """Return the users of a metadata store, with some more."""
    policy = LoginPolicy(metadata, required=True if users else None)
    stored = StoredUsers(metadata, policy)
    stored.iterations = CHEAP
    await stored.load()
    stack.push_async_callback(stored.close)
    for name, password in users.items():
        await stored.put_user(name, password)
    return stored


class SocketClient(Protocol):
    """A client of a test, with its end of the connection."""

    @property
    def writer(self) -> asyncio.StreamWriter: ...


class StartedAdapter(Protocol):
    """The part of an adapter that starts and stops it."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@contextlib.asynccontextmanager
async def serving(
    adapter: StartedAdapter, storage: HeldStorage, clients: Sequence[SocketClient]
) -> AsyncIterator[None]:
    """Run an adapter; at the end release its storage and close the clients before it stops."""
    await adapter.start()
    try:
        yield
    finally:
        storage.release()
        await close_all(client.writer for client in clients)
        await adapter.stop()


async def close_all(writers: Iterable[asyncio.StreamWriter]) -> None:
    """Close connections, also those whose other end is gone."""
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
