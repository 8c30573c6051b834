"""Shards of what is appended together: state beside a message lies in the message's shard.

So a message, its QoS 2 identifier, its retained copy and its delivery state need no transfer when
other shards are another node's.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.model import TopicName
from gateway.partition import Write
from gateway.placement import shard_of
from gateway.slots import partition_for_key, shard_of_share
from gateway.storage import OnDone
from tests.contracts.test_moving_shards import kept_client
from tests.support import mqtt_wire as wire
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import V5, Kind
from tests.support.placed_node import SHARDS, PlacedNode
from tests.support.sqs_raw import JsonClient

PARTITIONS = 16


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PlacedNode]:
    settings = {"adapters.mqtt.websocket.enabled": "false", "adapters.mqtt.sys_interval_s": 0}
    with PlacedNode(tmp_path / "data", ["mqtt", "sqs"], settings, {"mqtt": PARTITIONS}) as node:
        yield node


class Appends:
    """Appends of a node from now on: the partitions that each is for."""

    def __init__(self, node: PlacedNode) -> None:
        self._node = node
        self.found: list[list[Write]] = []
        node.call(self._wrap)

    def _wrap(self) -> None:
        broker: Any = self._node.kernel.broker
        append = broker.append

        def appending(
            writes: Sequence[Write], on_done: OnDone, *, reserved: bool = False
        ) -> None:
            self.found.append(list(writes))
            append(writes, on_done, reserved=reserved)

        broker.append = appending

    def with_topic(self, name: str) -> list[set[int]]:
        """Return the shards of each append that holds a message of a topic."""
        return [
            {write.partition.shard for write in writes}
            for writes in self._node.call(lambda: list(self.found))
            if any(write.partition.topic.name.name == name for write in writes)
        ]

    def topics(self) -> set[str]:
        """Return the names of all topics that were appended to."""
        found = self._node.call(lambda: list(self.found))
        return {write.partition.topic.name.name for writes in found for write in writes}


def shard_of_name(node: PlacedNode, name: bytes) -> int:
    topic = node.kernel.topics.get(TopicName("default", "mqtt"))
    number = partition_for_key(name, PARTITIONS)
    return shard_of(topic, number, node.placement)


@pytest.mark.parametrize(
    ("qos", "retain", "beside"),
    [
        (1, True, {"__mqtt_retained"}),
        (2, False, {"__mqtt_inbound"}),
        (2, True, {"__mqtt_inbound", "__mqtt_retained"}),
    ],
)
def test_an_mqtt_message_and_what_is_beside_it_are_in_one_shard(
    node: PlacedNode, qos: int, beside: set[str], *, retain: bool
) -> None:
    appends = Appends(node)
    names = [f"a/{number}" for number in range(8)]
    with RawClient(node.ports["mqtt"], version=V5) as client:
        client.connect("publisher", found=[(wire.Prop.SESSION_EXPIRY, 600)])
        for packet_id, name in enumerate(names, 1):
            client.send(
                wire.publish(
                    name, b"x", qos=qos, packet_id=packet_id, retain=retain, version=V5
                )
            )
            client.receive(Kind.PUBACK if qos == 1 else Kind.PUBREC)
    shards = [{shard_of_name(node, name.encode())} for name in names]
    assert appends.with_topic("mqtt") == shards
    assert len({shard for one in shards for shard in one}) > 1
    assert beside <= appends.topics()


def test_delivery_state_of_a_queue_is_in_the_messages_shard(node: PlacedNode) -> None:
    with JsonClient(node.ports["sqs"]) as client:
        url = client.made("work")
        appends = Appends(node)
        client.call("SendMessage", QueueUrl=url, MessageBody="x")
        [message] = client.call("ReceiveMessage", QueueUrl=url)["Messages"]
        client.call("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    [of_message] = appends.with_topic("work")
    of_state = appends.with_topic("__queues")
    assert len(of_state) >= 2
    assert all(shards == of_message for shards in of_state)


@pytest.mark.parametrize("is_share_kept", [False, True])
def test_what_a_shared_subscription_appends_is_in_shards_of_its_node(
    node: PlacedNode, *, is_share_kept: bool
) -> None:
    """Also when its own record would be in a shard of the other node."""
    half = range(SHARDS // 2, SHARDS)
    group = next(
        name
        for name in map("g{}".format, itertools.count())
        if (shard_of_share(name, "a/#", SHARDS) not in half) is is_share_kept
    )
    names = [f"a/{number}" for number in range(64)]
    names = [name for name in names if shard_of_name(node, name.encode()) not in half][:12]
    node.give_half()
    with RawClient(node.ports["mqtt"]) as client, RawClient(node.ports["mqtt"]) as publisher:
        client.connect(kept_client("member"), found=[(wire.Prop.SESSION_EXPIRY, 600)])
        appends = Appends(node)
        assert client.subscribe((f"$share/{group}/a/#", 2)) == [2]
        publisher.connect(kept_client("publisher"))
        for name in names:
            publisher.publish(name, b"x", qos=2)
        came = [message.topic for message in client.messages(len(names))]
    assert sorted(came) == sorted(names)
    writes = [write for one in node.call(lambda: list(appends.found)) for write in one]
    assert {write.partition.shard for write in writes}.isdisjoint(half)
    of_lanes = {
        write.partition.shard
        for write in writes
        if write.partition.topic.name.name == "__mqtt_shares"
    }
    assert of_lanes >= {shard_of_name(node, name.encode()) for name in names}
