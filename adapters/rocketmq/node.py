"""State shared by all connections of the endpoint: clients by group, queues, the name server."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final, cast

from adapters.rocketmq.access import PROTOCOL
from adapters.rocketmq.config import RocketMqConfig
from adapters.rocketmq.decoded_runs import DecodedRuns
from adapters.rocketmq.mapping import Placed
from adapters.rocketmq.names import to_topic_name
from adapters.rocketmq.nameserver.registry import BrokerRegistry
from adapters.rocketmq.nameserver.routes import MASTER_ID, BrokerEntry
from adapters.rocketmq.ports import Client
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.message_codec import encode_host
from adapters.rocketmq.remoting.wire import (
    ONEWAY_FLAG,
    Command,
    RequestCode,
    ResponseCode,
)
from adapters.rocketmq.subscriptions import Subscription
from gateway.auth.ports import ANONYMOUS, Principal
from gateway.budget import Budget
from gateway.coalescer import Coalescer
from gateway.config.base import Address, parse_address
from gateway.errors import TopicExists
from gateway.groups.client_roster import ClientRoster
from gateway.groups.model import GroupName
from gateway.kernel import Kernel
from gateway.metadata.documents import Documents
from gateway.model import DEFAULT_NAMESPACE
from gateway.monitoring.request_latency import RequestLatency
from gateway.partition import Partition
from gateway.topics.manager import Topic

Subscriptions = Mapping[str, Subscription]
"""Subscriptions of one consumer by topic."""
_UNKNOWN_HOST: Final = "127.0.0.1"
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound


class RocketMqNode:
    """The node's part of the adapter. Loop only. ``host`` and ``port`` are set once it listens."""

    def __init__(self, config: RocketMqConfig, kernel: Kernel) -> None:
        self.config = config
        self.kernel = kernel
        self.host = ""
        self.port = 0
        self.coalescer = Coalescer(kernel.broker)
        self.decoded = DecodedRuns()
        self.documents = Documents(kernel.metadata)
        self.brokers = BrokerRegistry(config.nameserver, kernel.clock)
        self.request_budget = Budget(
            "request", config.request_bytes_budget, stall_s_max=config.request_stall_s_max
        )
        self.pull_budget = Budget("pull", kernel.settings.broker.fetch_bytes_budget)
        self.consumers: ClientRoster[Subscriptions] = ClientRoster(
            kernel.clock,
            expiry_ms=config.client_expiry_s * 1_000,
            members_max=config.client_groups_max,
            on_changed=self._notify_members,
        )
        """Consumers by group."""
        self.producers: ClientRoster[None] = ClientRoster(
            kernel.clock,
            expiry_ms=config.client_expiry_s * 1_000,
            members_max=config.client_groups_max,
            on_changed=lambda _group: None,
        )
        """Producers by group."""
        self.requests: Counter[int | str] = Counter()
        """Count of requests by code."""
        self.latency = RequestLatency()
        self._next_queue: dict[Topic, int] = {}

    async def load(self) -> None:
        """Load the name server's key-value configs. Error: ``StorageUnavailable``."""
        await self.documents.load()

    async def close(self) -> None:
        """Stop timers, and wait for changes that have begun."""
        self.consumers.close()
        self.producers.close()
        self.brokers.close()
        await self.documents.close()

    @staticmethod
    def name_of(code: int) -> str:
        """Return the name of a served request, for metrics."""
        return RequestCode(code).name

    @staticmethod
    def anonymous(host: str) -> Principal:
        """Return the principal of a request that is not signed."""
        return Principal(ANONYMOUS, PROTOCOL, host)

    # --- addresses

    def advertised_to(self, transport: asyncio.Transport | None) -> Address:
        """Return the address that routes and message ids name to the client of a connection."""
        if self.config.advertise is not None:
            return parse_address(self.config.advertise)
        if self.host not in _WILDCARDS:
            return Address(self.host, self.port)
        sockname = transport.get_extra_info("sockname") if transport is not None else None
        return Address(sockname[0] if sockname else _UNKNOWN_HOST, self.port)

    def broker_entry(self, client: Client) -> BrokerEntry:
        """Return this broker as routes name it."""
        addresses = {MASTER_ID: str(client.advertised)}
        return BrokerEntry(self.config.broker_name, self.config.cluster_name, addresses)

    def placed(self, client: Client, partition: Partition) -> Placed:
        """Return the place of a partition's messages as a client sees it."""
        return Placed(
            partition.topic.name.name,
            partition.number,
            partition.partition_id,
            encode_host(client.advertised),
            self.config.cluster_name,
        )

    # --- topics

    def topic(self, name: str) -> Topic:
        """Return a topic by its RocketMQ name. Error: ``TopicNotFound``."""
        return self.kernel.topics.get(to_topic_name(name))

    def find_topic(self, name: str) -> Topic | None:
        """Return a topic by its RocketMQ name, None for one that cannot be."""
        topic = self.kernel.topics.find(to_topic_name(name))
        return None if topic is None or topic.is_internal else topic

    def partition(self, topic_name: str, queue_id: int) -> Partition:
        """Return a queue. Errors: ``TopicNotFound``; ``Refused`` for an unknown queue id."""
        topic = self.topic(topic_name)
        if topic.is_internal or not 0 <= queue_id < len(topic.partition_ids):
            remark = f"queueId[{queue_id}] is illegal, topic:[{topic_name}]"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return self.kernel.broker.partition(topic, queue_id)

    async def create_topic(self, name: str, queues: int) -> Topic:
        """Return a topic, made with so many queues unless it is there. Errors: of the creation."""
        topic_name = to_topic_name(name)
        if not self.kernel.settings.topic_defaults.auto_create:
            return self.kernel.topics.get(topic_name)
        try:
            return await self.kernel.topics.create(topic_name, partitions=queues)
        except TopicExists:
            return self.kernel.topics.get(topic_name)

    def next_queue(self, topic: Topic) -> int:
        """Return the queue of a message whose producer leaves the choice to the server."""
        number = self._next_queue.get(topic, -1) + 1
        self._next_queue[topic] = number = number % len(topic.partition_ids)
        return number

    # --- clients

    def _notify_members(self, group: GroupName) -> None:
        """Notify the members of a group of a change in the list of its members."""
        fields = {"consumerGroup": group.name}
        command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields, flag=ONEWAY_FLAG)
        for member in self.consumers.members(group):
            client = cast("Client", member.holder)
            client.guard(client.notify, command)

    def end_client(self, client: Client) -> None:
        """Forget a connection that has ended."""
        self.consumers.end_holder(client)
        self.producers.end_holder(client)
        self.brokers.end_holder(client)

    def groups_of(self, client: Client) -> list[str]:
        """Return the names of the groups whose members a connection has."""
        held = [*self.consumers.held_by(client), *self.producers.held_by(client)]
        return sorted({group.name for group, _ in held})


def group_name(name: str) -> GroupName:
    """Return the full name of a group."""
    return GroupName(DEFAULT_NAMESPACE, name)
