"""Moves of shards under clients: who waits is answered, and what each protocol says then."""

import http.client
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.admin.token import read_token
from gateway.model import TopicName
from gateway.placement import shard_of
from gateway.slots import partition_for_key, shard_of_client, shard_of_group
from tests.contracts.test_other_owners import (
    NONE,
    NOT_COORDINATOR,
    NOT_LEADER,
    OTHER,
    PARTITIONS,
    Half,
    ask,
    fetch_fields,
    join_fields,
    one,
    produce_fields,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import V3_1_1, V5, Kind
from tests.support.placed_node import SHARDS, PlacedNode
from tests.support.sqs_raw import JsonClient, Refused
from tests.support.waiting import wait_until

UPPER: Final = SHARDS // 2
FETCH, PRODUCE, JOIN, METADATA = 1, 0, 11, 3


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PlacedNode]:
    folder = tmp_path / "data"
    settings = {"adapters.mqtt.websocket.enabled": "false", "adapters.mqtt.sys_interval_s": 0}
    topics = {"t": PARTITIONS, "mqtt": PARTITIONS}
    with PlacedNode(folder, ["kafka", "mqtt", "sqs"], settings, topics) as node:
        yield node


@pytest.fixture
def half(node: PlacedNode) -> Half:
    """A node that still has all of its shards; ``given`` names what lies in the upper half."""
    topic = node.kernel.topics.get(TopicName("default", "t"))
    away = [shard_of(topic, n, node.placement) >= UPPER for n in range(PARTITIONS)]
    groups = {shard_of_group("default", f"g{n}", SHARDS) >= UPPER: f"g{n}" for n in range(64)}
    return Half(
        node, topic.uuid, away.index(False), away.index(True), groups[False], groups[True]
    )


class _Later:
    """A request in a thread of its own, and its answer."""

    def __init__(self, work: Any) -> None:
        self._answers: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(work()))
        self._thread.start()

    def result(self) -> Any:
        self._thread.join()
        [answer] = self._answers
        return answer


# --- Kafka


def test_a_waiting_fetch_is_answered_when_its_shard_goes(half: Half) -> None:
    fields = fetch_fields(half, half.given, 16, wait_ms=600_000)
    fields["topics"][0].partitions[0].fetch_offset = _end(half)
    later = _Later(lambda: ask(half.node, FETCH, 16, **fields))
    partition = half.node.kernel.broker.partition(_topic(half), half.given)
    wait_until(lambda: bool(partition.waiters), within_s=60, what="the fetch waits")

    half.node.give_half()

    found = later.result()
    part = one(found, "responses", "partitions")
    assert part.error_code.value == NOT_LEADER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (
        OTHER,
        half.node.placement.epoch(partition.shard),
    )
    assert [(node.node_id, node.host) for node in found.node_endpoints] == [
        (OTHER, "127.0.0.2")
    ]


def test_a_waiting_member_is_sent_to_the_new_coordinator(half: Half) -> None:
    group = half.given_group
    fields = join_fields(half, group)
    member = ask(half.node, JOIN, 9, **fields).member_id
    later = _Later(lambda: ask(half.node, JOIN, 9, **fields | {"member_id": member}))
    groups = half.node.kernel.groups
    wait_until(lambda: groups.member_count > 0, within_s=60, what="the member waits")

    half.node.give_half()

    assert later.result().error_code.value == NOT_COORDINATOR


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_produce_names_the_new_leader(half: Half, version: int) -> None:
    half.node.give_half()
    found = ask(half.node, PRODUCE, version, **produce_fields(half, half.given, version))
    part = one(found, "responses", "partition_responses")
    assert part.error_code.value == NOT_LEADER
    if version >= 10:
        assert part.current_leader.leader_id == OTHER
        assert [node.node_id for node in found.node_endpoints] == [OTHER]
        assert found.node_endpoints[0].port == half.node.ports["kafka"]


def test_a_list_of_all_topics_follows_the_owners(half: Half) -> None:
    def leaders() -> list[int]:
        found = ask(half.node, METADATA, 12, topics=None, allow_auto_topic_creation=False)
        [topic] = [topic for topic in found.topics if topic.name == "t"]
        return [part.leader_id for part in topic.partitions]

    alone = leaders()
    half.node.give_half()
    shared = leaders()
    half.node.call(lambda: half.node.placement.abandon(range(UPPER, SHARDS)))
    nobody = leaders()
    half.node.take_half()

    assert set(alone) == {1}
    assert (shared[half.kept], shared[half.given]) == (1, OTHER)
    assert (nobody[half.kept], nobody[half.given]) == (1, -1)
    assert leaders() == alone


def test_a_partition_that_comes_back_goes_on_where_it_was(half: Half) -> None:
    def produce() -> int:
        fields = produce_fields(half, half.given, 12)
        part = one(ask(half.node, PRODUCE, 12, **fields), "responses", "partition_responses")
        assert part.error_code.value == NONE
        return int(part.base_offset)

    first = produce()
    half.node.give_half()
    half.node.take_half()
    assert produce() == first + 1


def _topic(half: Half) -> Any:
    return half.node.kernel.topics.get(TopicName("default", "t"))


def _end(half: Half) -> int:
    broker = half.node.kernel.broker
    return half.node.call(lambda: broker.partition(_topic(half), half.given).high_watermark)


# --- MQTT


def _mqtt_topics(node: PlacedNode) -> tuple[str, str]:
    """Return an MQTT topic name whose partition stays, and one whose partition goes."""
    topic = node.kernel.topics.get(TopicName("default", "mqtt"))
    found = {}
    for name in (f"a/{n}" for n in range(1000)):
        number = partition_for_key(name.encode(), len(topic.partition_ids))
        found[shard_of(topic, number, node.placement) >= UPPER] = name
    assert len(found) == 2, "all partitions are on one side"
    return found[False], found[True]


def kept_client(name: str) -> str:
    """Return a client identifier whose session the node keeps."""
    names = (f"{name}-{number}" for number in itertools.count())
    return next(one for one in names if shard_of_client("default", one, SHARDS) < UPPER)


def test_mqtt_refuses_what_another_node_keeps(half: Half) -> None:
    port = half.node.ports["mqtt"]
    kept, given = _mqtt_topics(half.node)
    with RawClient(port) as client, RawClient(port) as subscriber:
        client.connect(kept_client("publisher"))
        subscriber.connect(kept_client("subscriber"))
        subscriber.subscribe(("#", 0))
        client.publish(given, b"before", qos=1)
        half.node.give_half()
        codes = []
        for name in (kept, given):
            packet_id = client.next_id()
            client.send(wire.publish(name, b"during", qos=1, packet_id=packet_id, version=V5))
            answer = client.receive(Kind.PUBACK)
            assert answer.packet_id == packet_id
            codes.append(answer.code)
        assert codes == [0, 0x83]
        half.node.take_half()
        client.publish(given, b"after", qos=1)
        payloads = [message.payload for message in subscriber.messages(3)]
        assert payloads == [b"before", b"during", b"after"]


def test_mqtt_3_closes_the_connection_so_that_the_client_sends_again(half: Half) -> None:
    _, given = _mqtt_topics(half.node)
    half.node.give_half()
    with RawClient(half.node.ports["mqtt"], version=V3_1_1) as client:
        client.connect(kept_client("old"))
        client.send(wire.publish(given, b"x", qos=1, packet_id=1, version=V3_1_1))
        assert client.until_closed() == []


# --- SQS and the admin API


def test_sqs_asks_to_try_again_for_a_queue_of_another_node(half: Half) -> None:
    with JsonClient(half.node.ports["sqs"]) as client:
        queues: dict[bool, str] = {}
        for number in range(64):
            name = f"queue-{number}"
            url = client.made(name)
            [queue] = [q for q in half.node.kernel.queues.everything() if q.name.name == name]
            away = {lane.partition.shard >= UPPER for lane in queue.lanes}
            if len(away) == 1:
                queues[away.pop()] = url
            if len(queues) == 2:
                break
        half.node.give_half()
        client.call("SendMessage", QueueUrl=queues[False], MessageBody="x")
        for action, params in (
            ("SendMessage", {"MessageBody": "x"}),
            ("ReceiveMessage", {}),
            ("GetQueueAttributes", {"AttributeNames": ["All"]}),
            ("PurgeQueue", {}),
        ):
            with pytest.raises(Refused) as info:
                client.call(action, QueueUrl=queues[True], **params)
            assert (info.value.code, info.value.status) == ("ServiceUnavailable", 503), action


def test_the_admin_api_answers_421_with_the_owner(half: Half) -> None:
    half.node.give_half()
    placement = half.node.placement
    owner = {
        "node_id": OTHER,
        "epoch": placement.epoch(shard_of_group("default", half.given_group, SHARDS)),
    }
    move = {"topic": "t", "partition": half.kept, "to": "earliest"}
    for method, path, body in (
        ("GET", f"/v1/groups/{half.given_group}", None),
        ("DELETE", f"/v1/groups/{half.given_group}", None),
        ("POST", f"/v1/groups/{half.given_group}/offsets", move),
    ):
        status, found = _admin(half.node, method, path, body)
        assert (status, found["owner"], found["retriable"]) == (421, owner, True), path
    away = {"topic": "t", "partition": half.given, "to": "earliest"}
    status, found = _admin(half.node, "POST", f"/v1/groups/{half.kept_group}/offsets", away)
    assert (status, found["error"]) == (421, "NotLeader")

    status, found = _admin(half.node, "GET", "/v1/topics/t", None)
    assert status == 200
    assert found["partitions"][half.given]["owner"] == OTHER
    assert "owner" not in found["partitions"][half.kept]


def _admin(node: PlacedNode, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    token = read_token(Path(node.kernel.settings.node.data_dir))
    connection = http.client.HTTPConnection("127.0.0.1", node.admin_port, timeout=60)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, json.loads(data or b"{}")
