"""Answers of each protocol to a request whose own answer was lost: it may be done, or not."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import OutcomeUnknown, StorageUnavailable
from gateway.model import TopicName
from gateway.storage import Entry
from tests.contracts.test_moving_shards import _admin
from tests.contracts.test_other_owners import (
    GROUP_ROWS,
    NONE,
    PARTITIONS,
    Half,
    ask,
    one,
    produce_fields,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import V3_1_1, V5, Kind
from tests.support.placed_node import PlacedNode
from tests.support.sqs_raw import JsonClient, Refused

PRODUCE, OFFSET_COMMIT = 0, 8
REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE = 7, 15


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PlacedNode]:
    settings = {"adapters.mqtt.websocket.enabled": "false", "adapters.mqtt.sys_interval_s": 0}
    topics = {"t": PARTITIONS, "mqtt": 1}
    with PlacedNode(tmp_path / "data", ["kafka", "mqtt", "sqs"], settings, topics) as node:
        yield node


def lose_answers(node: PlacedNode) -> None:
    """Lose the answer to each append from now on, which is stored."""

    def wrap() -> None:
        storage: Any = node.kernel.broker.storage
        enqueue = storage.enqueue

        def losing(
            entries: Sequence[Entry],
            on_done: Callable[[StorageUnavailable], None],
            *,
            reserved: bool = False,
        ) -> None:
            lost = OutcomeUnknown("the link broke")
            enqueue(entries, lambda _error: on_done(lost), reserved=reserved)

        storage.enqueue = losing

    node.call(wrap)


def stored(node: PlacedNode, topic: str, number: int = 0) -> int:
    """Return the end of what the storage has of a partition."""
    partition_id = node.kernel.topics.get(TopicName("default", topic)).partition_ids[number]
    return node.call(lambda: node.kernel.broker.storage.bounds(partition_id).end)


def test_kafka_answers_that_the_request_timed_out(node: PlacedNode) -> None:
    topic = node.kernel.topics.get(TopicName("default", "t"))
    half = Half(node, topic.uuid, 0, 0, "g", "g")
    lose_answers(node)
    fields = produce_fields(half, 0, 12)
    part = one(ask(node, PRODUCE, 12, **fields), "responses", "partition_responses")
    assert part.error_code.value == REQUEST_TIMED_OUT
    assert stored(node, "t") == 1


def test_kafka_searches_the_coordinator_again_for_a_commit(node: PlacedNode) -> None:
    topic = node.kernel.topics.get(TopicName("default", "t"))
    half = Half(node, topic.uuid, 0, 0, "g", "g")
    [(row, own)] = [one for one in GROUP_ROWS if one[0].api_key == OFFSET_COMMIT]
    codes = [own]
    for lose in (False, True):
        if lose:
            lose_answers(node)
        found = ask(node, row.api_key, row.version, **row.fields(half, "g"))
        codes.append(row.code(found).value)
    assert codes == [NONE, NONE, COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [V3_1_1, V5])
def test_mqtt_closes_the_connection_without_an_acknowledgement(
    node: PlacedNode, version: int, qos: int
) -> None:
    """The client sends again with DUP; an answer with an error would end the exchange."""
    with RawClient(node.ports["mqtt"], version=version) as client:
        client.connect("publisher")
        lose_answers(node)
        client.send(wire.publish("a/b", b"x", qos=qos, packet_id=7, version=version))
        left = client.until_closed()
    kinds = [packet.kind for packet in left]
    assert kinds == ([Kind.DISCONNECT] if version == V5 else [])
    assert [packet.code for packet in left] == ([0x83] if version == V5 else [])
    assert stored(node, "mqtt") == 1


def test_sqs_asks_to_try_again(node: PlacedNode) -> None:
    with JsonClient(node.ports["sqs"]) as client:
        url = client.made("work")
        lose_answers(node)
        with pytest.raises(Refused) as info:
            client.call("SendMessage", QueueUrl=url, MessageBody="x")
        assert (info.value.code, info.value.status) == ("ServiceUnavailable", 503)
    assert stored(node, "work") == 1


def test_the_admin_api_says_that_the_outcome_is_unknown(node: PlacedNode) -> None:
    lose_answers(node)
    move = {"topic": "t", "partition": 0, "to": "earliest"}
    status, found = _admin(node, "POST", "/v1/groups/g/offsets", move)
    assert (status, found["error"], found["retriable"]) == (503, "OutcomeUnknown", True)
