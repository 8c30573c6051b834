"""A whole node starts with half of its shards away: each protocol serves its half only."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from gateway.model import TopicName
from gateway.placement import shard_of
from gateway.slots import partition_for_key, shard_of_group
from tests.contracts.test_moving_shards import kept_client
from tests.contracts.test_other_owners import (
    NONE,
    NOT_COORDINATOR,
    NOT_LEADER,
    OTHER,
    PARTITIONS,
    SELF,
    Half,
    ask,
    fetch_fields,
    one,
    produce_fields,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import V5, Kind
from tests.support.placed_node import SHARDS, PlacedNode
from tests.support.sqs_raw import JsonClient, Refused

ADAPTERS: Final = ("kafka", "mqtt", "sqs")
SETTINGS: Final = {
    "adapters.mqtt.websocket.enabled": "false",
    "adapters.mqtt.sys_interval_s": 0,
}
TOPICS: Final = {"t": PARTITIONS, "mqtt": PARTITIONS}
QUEUES: Final = [f"queue-{n}" for n in range(24)]
UPPER: Final = range(SHARDS // 2, SHARDS)
PRODUCE, FETCH, METADATA, HEARTBEAT, OFFSET_FETCH = 0, 1, 3, 12, 9


class Names(NamedTuple):
    """A partition, a group, a topic and a queue of one half of the shards."""

    partition: int
    group: str
    mqtt_topic: str
    queue: str


class Started(NamedTuple):
    """A node that has started with half of its shards, and names of either half."""

    node: PlacedNode
    kafka: Half
    kept: Names
    given: Names


def halves(node: PlacedNode) -> tuple[Names, Names]:
    """Return names of the lower half, and names of the upper one."""

    def is_upper(name: str, number: int) -> bool:
        topic = node.kernel.topics.get(TopicName("default", name))
        return shard_of(topic, number, node.placement) in UPPER

    def first(values: Any, is_away: Any) -> tuple[Any, Any]:
        by_half = {is_away(value): value for value in values}
        return by_half[False], by_half[True]

    parts = (
        first(range(PARTITIONS), lambda n: is_upper("t", n)),
        first(
            [f"g{n}" for n in range(64)],
            lambda name: shard_of_group("default", name, SHARDS) in UPPER,
        ),
        first(
            [f"a/{n}" for n in range(1000)],
            lambda name: is_upper("mqtt", partition_for_key(name.encode(), PARTITIONS)),
        ),
        first(QUEUES, lambda name: is_upper(name, 0)),
    )
    return Names(*(part[0] for part in parts)), Names(*(part[1] for part in parts))


def placed(folder: Path, **how: Any) -> PlacedNode:
    return PlacedNode(folder, ADAPTERS, SETTINGS, TOPICS, queues=QUEUES, **how)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Yield a node whose data, written by an earlier start with all shards, is in both halves."""
    with placed(tmp_path / "data") as node:
        for names in halves(node):
            write(node, names)
    with placed(tmp_path / "data", away=UPPER) as node:
        kept, given = halves(node)
        uuid = node.kernel.topics.get(TopicName("default", "t")).uuid
        half = Half(node, uuid, kept.partition, given.partition, kept.group, given.group)
        yield Started(node, half, kept, given)


def write(node: PlacedNode, names: Names) -> None:
    """Write a message by each protocol."""
    uuid = node.kernel.topics.get(TopicName("default", "t")).uuid
    half = Half(node, uuid, names.partition, names.partition, names.group, names.group)
    assert produced(half, names.partition) == NONE
    with RawClient(node.ports["mqtt"]) as client:
        client.connect("writer")
        client.publish(names.mqtt_topic, b"before", qos=1, retain=True)
    with JsonClient(node.ports["sqs"]) as sqs:
        sqs.call("SendMessage", QueueUrl=names.queue, MessageBody="before")


def produced(half: Half, number: int) -> int:
    """Produce a record; return the code."""
    found = ask(half.node, PRODUCE, 12, **produce_fields(half, number, 12))
    return int(one(found, "responses", "partition_responses").error_code.value)


def test_kafka_serves_its_half(started: Started) -> None:
    half = started.kafka
    for number, code in ((half.kept, NONE), (half.given, NOT_LEADER)):
        found = ask(half.node, FETCH, 16, **fetch_fields(half, number, 16))
        part = one(found, "responses", "partitions")
        assert part.error_code.value == code
        assert part.high_watermark == (1 if code == NONE else -1)
        assert produced(half, number) == code
    for group, code in ((half.kept_group, 25), (half.given_group, NOT_COORDINATOR)):
        member = {"member_id": "m", "group_instance_id": None}
        found = ask(half.node, HEARTBEAT, 4, group_id=group, generation_id=1, **member)
        assert found.error_code.value == code  # 25 is UNKNOWN_MEMBER_ID
    found = ask(half.node, METADATA, 12, topics=None, allow_auto_topic_creation=False)
    [topic] = [topic for topic in found.topics if topic.name == "t"]
    leaders = {part.partition_index: part.leader_id for part in topic.partitions}
    assert (leaders[half.kept], leaders[half.given]) == (SELF, OTHER)

    half.node.take_half()
    found = ask(half.node, FETCH, 16, **fetch_fields(half, half.given, 16))
    assert one(found, "responses", "partitions").high_watermark == 1
    assert produced(half, half.given) == NONE


def test_mqtt_serves_its_half(started: Started) -> None:
    port = started.node.ports["mqtt"]
    kept, given = started.kept.mqtt_topic, started.given.mqtt_topic
    with RawClient(port) as client, RawClient(port) as subscriber:
        client.connect(kept_client("publisher"))
        subscriber.connect(kept_client("subscriber"))
        subscriber.subscribe(("a/#", 0))
        codes = []
        for name in (kept, given):
            packet_id = client.next_id()
            client.send(wire.publish(name, b"during", qos=1, packet_id=packet_id, version=V5))
            codes.append(client.receive(Kind.PUBACK).code)
        assert codes == [0, 0x83]
        started.node.take_half()
        client.publish(given, b"after", qos=1)
        came = [(message.topic, message.payload) for message in subscriber.messages(3)]
        assert came == [(kept, b"before"), (kept, b"during"), (given, b"after")]


def test_sqs_serves_its_half(started: Started) -> None:
    kept, given = started.kept.queue, started.given.queue
    with JsonClient(started.node.ports["sqs"]) as client:
        assert bodies(client, kept) == ["before"]
        requests: Mapping[str, Mapping[str, object]] = {
            "SendMessage": {"MessageBody": "x"},
            "ReceiveMessage": {},
            "GetQueueAttributes": {"AttributeNames": ["All"]},
            "PurgeQueue": {},
        }
        for action, params in requests.items():
            with pytest.raises(Refused) as info:
                client.call(action, QueueUrl=given, **params)
            assert (info.value.code, info.value.status) == ("ServiceUnavailable", 503), action

        started.node.take_half()
        assert bodies(client, given) == ["before"]


def bodies(client: JsonClient, queue: str) -> list[str]:
    """Return the bodies of the messages that a queue gives now."""
    found = client.call("ReceiveMessage", QueueUrl=queue, WaitTimeSeconds=20)
    return [str(message["Body"]) for message in found.get("Messages", [])]
