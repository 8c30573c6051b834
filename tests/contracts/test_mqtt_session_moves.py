"""Answers that MQTT clients get, and sessions that they find, when their shard moves."""

import asyncio
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, Self

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.model import TopicName
from gateway.placement import shard_of
from gateway.slots import partition_for_key, shard_of_client, shard_of_share
from tests.support import mqtt_wire as wire
from tests.support.mqtt_moving import client_beside
from tests.support.mqtt_raw import RawClient, payloads
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop, WillMessage
from tests.support.two_nodes import HOSTS, SHARDS, TwoNodes
from tests.support.waiting import wait_until

PARTITIONS: Final = 8
DECLARED: Final = f"""
[[topics]]
name = "mqtt"
partitions = {PARTITIONS}
"""
KEPT: Final = ((Prop.SESSION_EXPIRY, 600),)
USE_ANOTHER_SERVER: Final = 0x9C
SERVER_UNAVAILABLE: Final = 0x88
MOVED: Final = 0x83


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    with TwoNodes(tmp_path, ["mqtt"], DECLARED) as nodes:
        yield nodes


def client_shard(name: str) -> int:
    return shard_of_client("default", name, SHARDS)


def topic_shard(nodes: TwoNodes, topic: str) -> int:
    found = nodes.kernels[0].topics.get(TopicName("default", "mqtt"))
    number = partition_for_key(topic.encode(), PARTITIONS)
    return shard_of(found, number, nodes.placements[0])


def at(nodes: TwoNodes, index: int, version: int = V5) -> RawClient:
    """Connect to a node, without CONNECT."""
    return RawClient(nodes.ports["mqtt"], host=HOSTS[index], version=version)


def connected(nodes: TwoNodes, index: int, name: str, **options: Any) -> RawClient:
    """Connect, with a session that outlives the connection."""
    client = at(nodes, index)
    answer = client.connect(
        name, clean=False, found=[*KEPT, *options.pop("found", ())], **options
    )
    client.session_present = answer.session_present  # type: ignore[attr-defined]
    return client


def publish(
    nodes: TwoNodes, index: int, topic: str, *values: bytes, retain: bool = False
) -> None:
    """Publish with QoS 2, by a client whose session is where the topic is."""
    with at(nodes, index) as client:
        client.connect(client_beside(nodes, "publisher", topic))
        for value in values:
            client.publish(topic, value, qos=2, retain=retain)


# --- CONNECT


@pytest.mark.parametrize(("version", "code"), [(V5, USE_ANOTHER_SERVER), (V3_1_1, 3)])
def test_a_client_of_another_nodes_shard_is_sent_there(
    nodes: TwoNodes, version: int, code: int
) -> None:
    nodes.move([client_shard("c")], to=1)
    with at(nodes, 0, version) as client:
        answer = client.connect("c", code=code)
        assert not answer.session_present
        references = [] if version != V5 else [f"{HOSTS[1]}:{nodes.ports['mqtt']}"]
        assert answer.values(Prop.SERVER_REFERENCE) == references
        assert client.until_closed() == []
    with at(nodes, 1, version) as client:
        client.connect("c")


@pytest.mark.parametrize(("version", "code"), [(V5, SERVER_UNAVAILABLE), (V3_1_1, 3)])
def test_a_client_whose_shard_nobody_serves_tries_again(
    nodes: TwoNodes, version: int, code: int
) -> None:
    nodes.call(lambda: nodes.placements[0].abandon([client_shard("c")]))
    with at(nodes, 0, version) as client:
        client.connect("c", code=code)


def test_a_client_that_leaves_its_name_to_the_node_gets_one_that_it_serves(
    nodes: TwoNodes,
) -> None:
    nodes.move(range(0, SHARDS, 2), to=1)
    for index in (0, 1):
        with at(nodes, index) as client:
            [name] = client.connect("").values(Prop.ASSIGNED_CLIENT_ID)
            assert client_shard(str(name)) % 2 == 1 - index


class _Gate:
    """State whose shards open when the test says so."""

    def __init__(self) -> None:
        self.open_shards = set(range(SHARDS))
        self.opened = asyncio.Event()

    def quiesce_shards(self, shards: Collection[int]) -> None:
        pass

    def close_shards(self, shards: Collection[int]) -> None:
        self.open_shards.difference_update(shards)

    async def load_shards(self, shards: Collection[int]) -> None:
        await self.opened.wait()
        self.open_shards.update(shards)


@pytest.mark.parametrize(("version", "code"), [(V5, SERVER_UNAVAILABLE), (V3_1_1, 3)])
def test_while_its_shard_is_opened_a_client_is_not_given_a_new_session(
    nodes: TwoNodes, version: int, code: int
) -> None:
    with connected(nodes, 0, "c") as client:
        client.subscribe(("a", 1))
    shards, shard = nodes.kernels[0].broker.shards, client_shard("c")
    gate = nodes.call(_Gate)
    nodes.call(lambda: shards.register(gate))
    nodes.call(lambda: nodes.placements[0].give([shard]))
    nodes.call(lambda: nodes.placements[0].take([shard]))
    with at(nodes, 0, version) as client:
        client.connect("c", clean=False, code=code)
    nodes.call(gate.opened.set)
    wait_until(lambda: shards.is_open(shard), within_s=60, what="the shard is open")
    with connected(nodes, 0, "c") as client:
        assert client.session_present  # type: ignore[attr-defined]


# --- a session that moves


@pytest.mark.parametrize("version", [V5, V3_1_1])
def test_a_connected_client_is_sent_away_when_its_session_is_stored(
    nodes: TwoNodes, version: int
) -> None:
    with at(nodes, 0, version) as client:
        client.connect("c", clean=False, found=KEPT if version == V5 else ())
        client.subscribe(("a", 1))
        nodes.move([client_shard("c")], to=1)
        left = client.until_closed()
    if version == V5:
        [last] = left
        assert (last.kind, last.code) == (Kind.DISCONNECT, USE_ANOTHER_SERVER)
        assert last.values(Prop.SERVER_REFERENCE) == [f"{HOSTS[1]}:{nodes.ports['mqtt']}"]
    else:
        assert left == []
    with at(nodes, 1, version) as client:
        found = KEPT if version == V5 else ()
        assert client.connect("c", clean=False, found=found).session_present


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_in_flight_come_again_with_the_next_owner(nodes: TwoNodes, qos: int) -> None:
    topic = "in/flight"
    shards = {client_shard("c"), topic_shard(nodes, topic)}
    with connected(nodes, 0, "c") as client:
        client.subscribe((topic, qos))
        publish(nodes, 0, topic, b"1", b"2")
        before = client.messages(2, accept=False)
        nodes.move(shards, to=1)
    publish(nodes, 1, topic, b"3")
    with connected(nodes, 1, "c") as client:
        again = client.messages(3)
    assert payloads(again) == [b"1", b"2", b"3"]
    assert [one.flags >> 3 & 1 for one in again] == [1, 1, 0]
    assert [one.packet_id for one in again[:2]] == [one.packet_id for one in before]


def test_messages_in_flight_of_a_topic_that_is_elsewhere_come_when_it_comes(
    nodes: TwoNodes,
) -> None:
    topic = "in/flight"
    with connected(nodes, 0, "c") as client:
        client.subscribe(("#", 2))
        publish(nodes, 0, topic, b"1", b"2")
        client.messages(2, accept=False)
        nodes.move({client_shard("c")} - {topic_shard(nodes, topic)}, to=1)
    publish(nodes, 0, topic, b"3")
    with connected(nodes, 1, "c") as client:
        assert client.ping() == []
        nodes.move([topic_shard(nodes, topic)], to=1)
        assert payloads(client.messages(3)) == [b"1", b"2", b"3"]
        assert client.ping() == []


@pytest.mark.parametrize("subscribes", [False, True])
def test_a_live_subscriber_goes_on_at_the_exact_message_when_a_topic_returns(
    nodes: TwoNodes, *, subscribes: bool
) -> None:
    topic = "comes/back"
    name = next(
        f"c{n}" for n in range(99) if client_shard(f"c{n}") != topic_shard(nodes, topic)
    )
    with connected(nodes, 0, name) as client:
        client.subscribe(("#", 2))
        publish(nodes, 0, topic, b"1")
        assert payloads(client.messages(1)) == [b"1"]
        nodes.move([topic_shard(nodes, topic)], to=1)
        publish(nodes, 1, topic, b"2", b"3")
        assert client.ping() == []
        if subscribes:  # it changes nothing of where the session is
            client.subscribe((topic, 0))
        nodes.move([topic_shard(nodes, topic)], to=0)
        publish(nodes, 0, topic, b"4")
        came = client.messages(3)
        assert payloads(came) == [b"2", b"3", b"4"]


def test_a_subscription_begins_at_the_end_of_topics_of_the_other_node(nodes: TwoNodes) -> None:
    topic = "else/where"
    name = next(
        f"c{n}" for n in range(99) if client_shard(f"c{n}") != topic_shard(nodes, topic)
    )
    nodes.move([topic_shard(nodes, topic)], to=1)
    publish(nodes, 1, topic, b"before")
    with connected(nodes, 0, name) as client:
        client.subscribe(("#", 1))
        publish(nodes, 1, topic, b"after")
        nodes.move([topic_shard(nodes, topic)], to=0)
        assert payloads(client.messages(1)) == [b"after"]
        assert client.ping() == []


def test_retained_messages_move_with_their_topic(nodes: TwoNodes) -> None:
    topic = "kept/here"
    publish(nodes, 0, topic, b"old", retain=True)
    nodes.move_all(to=1)
    publish(nodes, 1, topic, b"new", retain=True)
    for index in (1, 0):
        nodes.move_all(to=index)
        with at(nodes, index) as client:
            client.connect("reader")
            client.subscribe(("#", 1))
            assert payloads(client.messages(1)) == [b"new"]
            assert client.ping() == []


# --- QoS 2 of publishers


def test_an_identifier_is_free_again_after_pubrel_at_another_node(nodes: TwoNodes) -> None:
    """PUBREL comes while the message's shard is elsewhere, and then the shard comes back."""
    topic = "once/only"
    name = next(
        f"p{n}" for n in range(99) if client_shard(f"p{n}") != topic_shard(nodes, topic)
    )
    with connected(nodes, 0, name) as client:
        client.send(wire.publish(topic, b"1", qos=2, packet_id=7))
        assert client.receive(Kind.PUBREC).code in {0, 0x10}
        nodes.move([topic_shard(nodes, topic)], to=1)
        client.send(wire.ack(Kind.PUBREL, 7))
        assert client.receive(Kind.PUBCOMP).code == 0
        nodes.move([topic_shard(nodes, topic)], to=0)
        client.send(wire.publish(topic, b"2", qos=2, packet_id=7))
        assert client.receive(Kind.PUBREC).code in {0, 0x10}
    assert stored(nodes, topic) == 2


def test_a_message_that_is_sent_again_to_the_next_owner_is_stored_once(nodes: TwoNodes) -> None:
    """The session moves alone: the message's shard follows later."""
    topic = "once/only"
    name = next(
        f"p{n}" for n in range(99) if client_shard(f"p{n}") != topic_shard(nodes, topic)
    )
    with connected(nodes, 0, name) as client:
        client.send(wire.publish(topic, b"1", qos=2, packet_id=7))
        assert client.receive(Kind.PUBREC).code in {0, 0x10}
        nodes.move([client_shard(name)], to=1)
    with connected(nodes, 1, name) as client:
        client.send(wire.publish(topic, b"1", qos=2, packet_id=7, dup=True))
        assert client.receive(Kind.PUBREC).code in {0, 0x10}
        nodes.move([topic_shard(nodes, topic)], to=1)
        client.send(wire.publish(topic, b"1", qos=2, packet_id=7, dup=True))
        assert client.receive(Kind.PUBREC).code in {0, 0x10}
        client.send(wire.ack(Kind.PUBREL, 7))
        assert client.receive(Kind.PUBCOMP).code == 0
    assert stored(nodes, topic) == 1


def stored(nodes: TwoNodes, topic: str) -> int:
    """Return the number of stored messages in a topic's partition."""
    found = nodes.kernels[0].topics.get(TopicName("default", "mqtt"))
    partition_id = found.partition_ids[partition_for_key(topic.encode(), PARTITIONS)]
    return nodes.call(lambda: nodes.kernels[0].broker.stored_bounds(partition_id).end)


# --- wills


@pytest.mark.parametrize("comes", [False, True])
def test_a_will_waits_with_the_next_owner(nodes: TwoNodes, *, comes: bool) -> None:
    will = WillMessage("wills/c", b"gone", qos=1, properties=((Prop.WILL_DELAY, 1),))
    with at(nodes, 0) as reader, connected(nodes, 0, "c", will=will) as client:
        reader.connect(client_beside(nodes, "reader", "wills/c"))
        nodes.move_all(to=1)
        client.until_closed()
    with at(nodes, 1) as reader:
        reader.connect(client_beside(nodes, "reader", "wills/c"))
        reader.subscribe(("wills/#", 1))
        if comes:
            with connected(nodes, 1, "c") as client:
                assert client.session_present  # type: ignore[attr-defined]
                client.send(wire.disconnect())
                client.until_closed()
            wills = nodes.call(lambda: _pending_wills(nodes))
            assert (wills, reader.ping()) == (0, [])
        else:
            assert payloads(reader.messages(1)) == [b"gone"]


def _pending_wills(nodes: TwoNodes) -> int:
    return len(nodes.adapter(1, "mqtt").node.wills)


# --- shared subscriptions


def test_a_shared_subscription_goes_on_where_it_was(nodes: TwoNodes) -> None:
    """The member's session, the topic and the group's record move one after the other."""
    topic, written = "jobs/1", "$share/g/jobs/#"
    moved = [
        client_shard("member"),
        topic_shard(nodes, topic),
        shard_of_share("g", "jobs/#", SHARDS),
    ]
    came: list[bytes] = []
    with connected(nodes, 0, "member") as client:
        client.subscribe((written, 2))
        publish(nodes, 0, topic, b"0")
        came += payloads(client.messages(1))
    for shard in moved:
        nodes.move([shard], to=1)
        index = int(nodes.placements[1].owns(topic_shard(nodes, topic)))
        publish(nodes, index, topic, b"%d" % (moved.index(shard) + 1))
    with connected(nodes, 1, "member") as client:
        came += payloads(client.messages(3))
        assert client.ping() == []
    assert came == [b"0", b"1", b"2", b"3"]


def test_members_on_two_nodes_get_each_message_once(nodes: TwoNodes) -> None:
    names = {client_shard(f"m{n}") % 2: f"m{n}" for n in range(64)}
    nodes.move(range(1, SHARDS, 2), to=1)
    topics = [f"jobs/{n}" for n in range(24)]
    with connected(nodes, 0, names[0]) as first, connected(nodes, 1, names[1]) as second:
        for client in (first, second):
            client.subscribe(("$share/g/jobs/#", 1))
        for topic in topics:
            publish(nodes, topic_shard(nodes, topic) % 2, topic, topic.encode())
        counts = [
            sum(topic_shard(nodes, topic) % 2 == index for topic in topics) for index in (0, 1)
        ]
        came = [*first.messages(counts[0]), *second.messages(counts[1])]
        assert first.ping() == second.ping() == []
    assert sorted(payloads(came)) == sorted(topic.encode() for topic in topics)


# --- a stock client


class _Paho:
    """A paho client that goes where a node refers it to, and keeps its session."""

    def __init__(self, nodes: TwoNodes, name: str) -> None:
        self.came: list[bytes] = []
        self.is_subscribed = threading.Event()
        self.connections: list[str] = []
        self._host = HOSTS[0]
        self._port = nodes.ports["mqtt"]
        self._is_over = False
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv5
        )
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_subscribe = lambda *_: self.is_subscribed.set()
        self.client.on_message = lambda _c, _u, message: self.came.append(
            bytes(message.payload)
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self.is_subscribed.wait(60)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._is_over = True
        self.client.disconnect()
        self._thread.join()

    def _run(self) -> None:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 600
        while not self._is_over:
            self.client.connect(
                self._host, self._port, clean_start=False, properties=properties
            )
            self.client.loop_forever(retry_first_connection=False)

    def _on_connect(self, client: Any, _user: Any, flags: Any, reason: Any, found: Any) -> None:
        if reason.is_failure:
            self._refer(client, found)
            return
        self.connections.append(self._host)
        if not flags.session_present:
            client.subscribe("stock/#", options=SubscribeOptions(qos=2))

    def _on_disconnect(self, client: Any, _u: Any, _f: Any, _reason: Any, found: Any) -> None:
        self._refer(client, found)

    def _refer(self, client: Any, found: Any) -> None:
        reference = getattr(found, "ServerReference", None)
        if reference is not None:
            self._host = reference.rpartition(":")[0]
        client.disconnect()  # it ends the loop, which else connects to the same node


def test_a_stock_client_follows_its_session(nodes: TwoNodes) -> None:
    topic = "stock/1"
    name = client_beside(nodes, "stock", topic)
    with _Paho(nodes, name) as stock:
        for number in range(6):
            index = number % 2
            nodes.move_all(to=index)
            publish(nodes, index, topic, b"%d" % number)
            wait_until(
                lambda number=number: len(stock.came) > number,  # type: ignore[misc]
                within_s=60,
                what="the message comes",
            )
    assert stock.came == [b"%d" % number for number in range(6)]
    assert stock.connections[:3] == [HOSTS[0], HOSTS[1], HOSTS[0]]
