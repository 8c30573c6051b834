"""A node without sockets: real kernel parts on memory storage, requests through the codecs.

A request is built as kafka-python's object, encoded by kafka-python, decoded as the server
decodes it, handled, encoded, and decoded again by kio, so that a response that only our own
classes could read fails the test.
"""

import asyncio
import dataclasses
import importlib
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from adapters.kafka.codecs import schema_codec
from adapters.kafka.config import KafkaConfig
from adapters.kafka.node.fetch_pacing import FetchPacing
from adapters.kafka.node.fetch_session_cache import FetchSessionCache
from adapters.kafka.node.metadata_cache import MetadataCache
from adapters.kafka.node.node import Node
from adapters.kafka.node.share_sessions import ShareBounds, ShareSessionCache
from adapters.kafka.session import Session
from gateway.auth.login_policy import LoginPolicy
from gateway.auth.ports import Operation, PatternKind, Principal, ResourceType, Rule
from gateway.auth.rules import RuleBook
from gateway.auth.users import StoredUsers
from gateway.broker import Broker
from gateway.budget import Budget
from gateway.clock import ManualClock
from gateway.config.base import Address
from gateway.config.settings import BrokerConfig, NodeConfig, Settings, TopicDefaults
from gateway.metadata.sql import SqlMetadata
from gateway.metadata.store import ProducerIds
from gateway.model import TopicName
from gateway.partition import Partition
from gateway.placement import SingleNode
from gateway.quotas.manager import Quotas
from gateway.shares.manager import ShareGroups
from gateway.storage import StorageAdapter
from gateway.topics.manager import Topic, TopicManager
from gateway.writer import Write
from storage_adapters.memory import MemoryStorage
from tests.adapters.kafka.codecs import kio_codec
from tests.support.batches import sample_batch
from tests.support.live_kernel import CHEAP
from tests.support.storage_host import TopicsHost

LEADER_EPOCH = 3
NODE_ID = 7
ADVERTISED = Address("gate.example", 9092)
ADMIN = "admin"


class Rig(TopicsHost):
    """Test rig of the handlers; ``session`` is that of ``admin``, a super user."""

    def __init__(self, node: Node, storage: StorageAdapter, clock: ManualClock) -> None:
        self.node = node
        self.topics = node.topics
        self.storage = storage
        self.clock = clock
        self.session = self.login(ADMIN)

    @property
    def rules(self) -> RuleBook:
        return cast("RuleBook", self.node.authorizer)

    @property
    def users(self) -> StoredUsers:
        return cast("StoredUsers", self.node.authenticator)

    def login(self, name: str) -> Session:
        session = Session(self.node, peer_host="10.1.2.3", advertised=ADVERTISED)
        session.principal = Principal(name, "kafka", "10.1.2.3")
        return session

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        return await self.topics.create(
            TopicName("default", name),
            partitions=partitions,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )

    def partition(self, topic: Topic, number: int = 0) -> Partition:
        return self.node.broker.partition(topic, number)

    async def produce(self, topic: Topic, *, number: int = 0, **batch: Any) -> None:
        """Append one ``sample_batch`` and wait until it is readable."""
        broker = self.node.broker
        write = broker.prepare(self.partition(topic, number), sample_batch(**batch))
        assert isinstance(write, Write)
        await done_of(lambda on_done: broker.append([write], on_done))

    def reincarnate(self, leader_epoch: int) -> None:
        """Change the node as a restart on the same data does: to a higher leader epoch."""
        placement = SingleNode(
            leader_epoch, node_id=NODE_ID, cluster_id="cluster-of-one-node-22"
        )
        broker = Broker(self.storage, placement, self.clock, BrokerConfig())
        for topic in self.topics.everything():
            topic.partitions[:] = [None] * len(topic.partitions)
        self.node = dataclasses.replace(self.node, placement=placement, broker=broker)
        self.session = self.login(ADMIN)

    async def allow(self, name: str, operation: Operation, resource: str, pattern: str) -> None:
        """Allow ``name`` only ``operation``, on names that begin with ``pattern``."""
        kind = PatternKind.PREFIX if pattern else PatternKind.ANY
        rule = Rule(name, operation, ResourceType(resource), kind, pattern)
        await self.rules.add_rules([rule])

    async def ask(
        self, module_name: str, version: int, *, session: Session | None = None, **fields: Any
    ) -> Any:
        """Send a request encoded by kafka-python; return the response decoded by kio."""
        module = importlib.import_module(f"adapters.kafka.handlers.{module_name}")
        assert version in module.VERSIONS
        request_class = request_class_of(module.API_KEY)
        body = bytes(request_class(version=version, **fields).encode())
        request = schema_codec.decode_request(module.API_KEY, version, body)
        response = module.handle(request, session or self.session, version)
        if inspect.isawaitable(response):
            response = await response
        if not isinstance(response, bytes | bytearray):
            response = schema_codec.encode_response(response, version)
        return kio_codec.decode(
            kio_codec.response_class(module.API_KEY, version), bytes(response)
        )


async def done_of(start: Any) -> None:
    """Call ``start`` with a callback and wait until it is called."""
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    start(done.set_result)
    error = await done
    assert error is None


def request_class_of(api_key: int) -> Any:
    """Return kafka-python's class of an API's requests."""
    if api_key == 3:
        return importlib.import_module("kafka.protocol.metadata").MetadataRequest
    module, stem, _ = schema_codec._MESSAGES[api_key]
    return getattr(importlib.import_module(f"kafka.protocol.{module}"), f"{stem}Request")


@asynccontextmanager
async def running(
    tmp_path: Path, *, topic_defaults: TopicDefaults | None = None
) -> AsyncIterator[Rig]:
    """Yield a rig on a fresh database and memory storage."""
    clock = ManualClock()
    settings = Settings(
        node=NodeConfig(data_dir=tmp_path), topic_defaults=topic_defaults or TopicDefaults()
    )
    metadata = SqlMetadata("sqlite", data_dir=tmp_path)
    await metadata.open()
    users = StoredUsers(metadata, LoginPolicy(metadata, required=True))
    users.iterations = CHEAP
    await users.load()
    rules = RuleBook(metadata, users, super_users=[ADMIN])
    await rules.load()
    topics = TopicManager(metadata, defaults=settings.topic_defaults, clock=clock)
    await topics.load()
    placement = SingleNode(LEADER_EPOCH, node_id=NODE_ID, cluster_id="cluster-of-one-node-22")
    storage = MemoryStorage(MemoryStorage.Config(), data_dir=tmp_path, clock=clock)
    broker = Broker(storage, placement, clock, BrokerConfig())
    nothing = cast("Any", None)
    node = Node(
        broker=broker,
        topics=topics,
        groups=cast("Any", None),
        cursors=cast("Any", None),
        transactions=cast("Any", None),
        authenticator=users,
        authorizer=rules,
        placement=placement,
        metadata=metadata,
        clock=clock,
        settings=settings,
        config=KafkaConfig(),
        fetch_budget=Budget("fetch", 1 << 20),
        fetch_pacing=FetchPacing(broker.writer),
        fetch_sessions=FetchSessionCache(clock, sessions_max=100, partitions_max=1_000),
        request_budget=Budget("request", 1 << 20),
        producer_ids=ProducerIds(metadata),
        metadata_cache=MetadataCache(placement),
        quotas=Quotas(metadata, clock),
        shares=ShareGroups(nothing, nothing, nothing, topics, broker, clock, settings.groups),
        share_sessions=ShareSessionCache(ShareBounds(100, 1_000, 10, 100), lambda _: None),
    )
    rig = Rig(node, storage, clock)
    await storage.open(rig)
    try:
        yield rig
    finally:
        await topics.close()
        await rules.close()
        await users.close()
        await storage.close()
        await metadata.close()
