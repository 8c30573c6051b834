"""Streams: topics that AMQP clients declare with ``x-queue-type=stream``.

A stream is a topic with one partition and no queue: each consumer reads it from a position of its
own, and nothing is taken out. Its declaration is the topic's config ``amqp.stream``.
"""

import base64
import binascii
import json
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from adapters.amqp.names import to_topic_name
from adapters.amqp.queues import Declaration
from adapters.amqp.stream_arguments import to_retention
from adapters.amqp.stream_batches import StreamBatches
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import decode_table, encode_table
from gateway.broker import Broker
from gateway.contributions import Contribution
from gateway.errors import PolicyViolation
from gateway.model import TopicName
from gateway.partition import Partition
from gateway.topics.config_specs import ConfigType, TopicConfigSpec
from gateway.topics.manager import Topic, TopicManager

STREAM_CONFIG: Final = "amqp.stream"
STREAM_TOPIC_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "1114112",  # as of queues
}


class Stream(NamedTuple):
    """Declared stream. ``owns_topic``: the topic was made for it and goes with it."""

    topic: Topic
    name: str
    declaration: Declaration
    owns_topic: bool


class StreamReceiver(Protocol):
    """Consumer of a stream, as its deletion ends it."""

    def on_cancelled(self) -> None:
        """End: the stream is gone."""
        ...


class Streams:
    """The node's streams. Loop only."""

    def __init__(self, topics: TopicManager, broker: Broker, hidden: tuple[str, ...]) -> None:
        self._topics = topics
        self._broker = broker
        self.batches = StreamBatches(broker, hidden)
        self._receivers: dict[UUID, dict[StreamReceiver, None]] = {}

    def find(self, namespace: str, name: str) -> Stream | None:
        """Return a stream by its name in AMQP."""
        topic = self._topics.find(to_topic_name(namespace, name))
        return None if topic is None else stream_of(topic)

    def partition(self, stream: Stream) -> Partition:
        """Return a stream's partition. Error: ``NotLeader`` for another node's."""
        return self._broker.partition(stream.topic, 0)

    def message_count(self, stream: Stream) -> int:
        """Return the number of offsets that a stream keeps; 0 on nodes that do not serve it."""
        if not self._broker.owns(stream.topic, 0):
            return 0
        partition = self.partition(stream)
        return partition.stable_end - partition.log_start_offset

    async def make(self, topic_name: TopicName, name: str, declared: Declaration) -> Stream:
        """Make a stream, or make one of a topic that is there.

        Errors: ``AmqpFault`` 406 for a topic of several partitions; ``PolicyViolation`` for an
        internal one; those of ``TopicManager.create`` and ``alter_configs``.
        """
        topic = self._topics.find(topic_name)
        retention = to_retention(declared.arguments)
        if topic is None:
            text = _to_text(name, declared, owns_topic=True)
            configs = {**STREAM_TOPIC_CONFIGS, **retention, STREAM_CONFIG: text}
            topic = await self._topics.create(topic_name, partitions=1, configs=configs)
            return Stream(topic, name, declared, owns_topic=True)
        if topic.is_internal:
            raise PolicyViolation(f"topic {topic_name.name} is internal")
        if len(topic.partition_ids) != 1:
            text = f"topic {topic_name.name} has {len(topic.partition_ids)} partitions"
            raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
        text = _to_text(name, declared, owns_topic=False)
        await self._topics.alter_configs(topic_name, {**retention, STREAM_CONFIG: text})
        return Stream(topic, name, declared, owns_topic=False)

    async def delete(self, stream: Stream) -> None:
        """Delete a stream, with its topic if it was made for it; consumers end.

        Error: ``TopicNotFound`` if somebody else was faster.
        """
        if stream.owns_topic:
            await self._topics.delete(stream.topic.name)
        else:
            await self._topics.alter_configs(stream.topic.name, {STREAM_CONFIG: None})
        for receiver in tuple(self._receivers.get(stream.topic.uuid, ())):
            receiver.on_cancelled()

    # --- consumers

    def join(self, stream: Stream, receiver: StreamReceiver) -> None:
        """Note a consumer."""
        self._receivers.setdefault(stream.topic.uuid, {})[receiver] = None

    def leave(self, stream: Stream, receiver: StreamReceiver) -> None:
        """Forget a consumer."""
        receivers = self._receivers.get(stream.topic.uuid, {})
        receivers.pop(receiver, None)
        if not receivers:
            self._receivers.pop(stream.topic.uuid, None)


def is_stream(topic: Topic) -> bool:
    """Say whether a topic is a stream."""
    return bool(topic.settings.contributed.get(STREAM_CONFIG))


def stream_of(topic: Topic) -> Stream | None:
    """Return the stream that a topic is; None for any other topic."""
    text = topic.settings.contributed.get(STREAM_CONFIG)
    if not text:
        return None
    found = json.loads(text)
    table, _ = decode_table(base64.b64decode(found["arguments"]))
    declared = Declaration(durable=True, exclusive=False, auto_delete=False, arguments=table)
    return Stream(topic, found["name"], declared, found["owns_topic"])


def _to_text(name: str, declared: Declaration, *, owns_topic: bool) -> str:
    table = base64.b64encode(encode_table(declared.arguments)).decode("ascii")
    values = {"name": name, "owns_topic": owns_topic, "arguments": table}
    return json.dumps(values, separators=(",", ":"))


def _check_text(text: str) -> str | None:
    """Check a value of the config, which any client with the right to may set."""
    if not text:
        return None
    try:
        found = json.loads(text)
        decode_table(base64.b64decode(found["arguments"], validate=True))
        is_valid = isinstance(found["name"], str) and isinstance(found["owns_topic"], bool)
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error, AmqpFault):
        is_valid = False
    return None if is_valid else "is no declaration of an AMQP stream"


CONTRIBUTION: Final = Contribution(
    topic_configs={
        STREAM_CONFIG: TopicConfigSpec(
            ConfigType.STRING,
            "",
            "",
            "Declaration of the topic as an AMQP stream; empty: it is none. Not in Kafka.",
            _check_text,
        )
    }
)
