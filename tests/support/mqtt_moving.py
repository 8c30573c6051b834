"""MQTT clients of two nodes between which shards move; each has one session, wherever it is."""

import itertools
from collections import deque
from typing import Final

from gateway.model import TopicName
from gateway.placement import shard_of
from gateway.slots import partition_for_key, shard_of_client
from tests.support import mqtt_wire as wire
from tests.support.history import History, Operation, Outcome
from tests.support.mqtt_durable import DurableClient, Line, Message, Subscriber
from tests.support.mqtt_wire import Kind, Received
from tests.support.two_nodes import HOSTS, SHARDS, TwoNodes

_IN_FLIGHT_MAX: Final = 8
_REFUSED: Final = 0x83
_TRY_AGAIN_S: Final = 0.005


class _InFlight:
    """A message on its way. ``is_received``: PUBREC has come."""

    def __init__(self, message: Message, send: Operation) -> None:
        self.message = message
        self.send = send
        self.is_received = False


class MovingPublisher(DurableClient):
    """Publishes to its topics, one message of each at a time, so that a topic keeps its order.

    A message that the node refuses, as its topic is the other one's, is sent again later.
    """

    hosts = HOSTS

    def __init__(
        self,
        port: int,
        client_id: str,
        *,
        topics: tuple[str, ...],
        qos: int,
        history: History,
        retain: bool = False,
        version: int = wire.V5,
    ) -> None:
        super().__init__(port, client_id, version=version)
        self._history = history
        self._qos = qos
        self.retain = retain
        self._sent = dict.fromkeys(topics, 0)
        self.last: dict[str, bytes] = {}
        """The last acknowledged payload by topic."""
        self._due = deque(topics)
        self._again: dict[str, _InFlight] = {}
        self._in_flight: dict[int, _InFlight] = {}
        self._packet_id = 0
        self.refused = 0

    def __repr__(self) -> str:
        return f"{self._in_flight} in flight, {self._again} refused"

    def _is_finished(self) -> bool:
        is_open = self._in_flight or self._again
        return self._finishing.is_set() and not is_open

    def _begin(self, line: Line) -> None:
        self._has_session = True
        for packet_id, one in self._in_flight.items():
            if one.is_received:
                line.send(wire.ack(Kind.PUBREL, packet_id))
            else:
                self._publish(line, packet_id, one, dup=True)

    def _turn(self, line: Line) -> None:
        if self._again:
            self._finishing.wait(_TRY_AGAIN_S)
        while self._due and len(self._in_flight) < _IN_FLIGHT_MAX:
            topic = self._due.popleft()
            one = self._again.pop(topic, None)
            if one is None:
                if self._finishing.is_set():
                    continue
                message = Message(self.client_id, topic, self._sent[topic])
                self._sent[topic] += 1
                send = self._history.send(self.client_id, topic, message.payload, qos=self._qos)
                one = _InFlight(message, send)
            packet_id = self._packet_id % _IN_FLIGHT_MAX + 1  # used again soon, and by others
            while packet_id in self._in_flight:
                packet_id = packet_id % _IN_FLIGHT_MAX + 1
            self._packet_id = packet_id
            self._in_flight[packet_id] = one
            self._publish(line, packet_id, one, dup=False)

    def _publish(self, line: Line, packet_id: int, one: _InFlight, *, dup: bool) -> None:
        line.send(
            wire.publish(
                one.message.topic,
                one.message.payload,
                qos=self._qos,
                packet_id=packet_id,
                dup=dup,
                retain=self.retain,
                version=self.version,
            )
        )

    def _serve(self, line: Line, packet: Received) -> None:
        packet_id = packet.packet_id
        one = self._in_flight[packet_id]
        topic = one.message.topic
        if packet.kind is Kind.PUBCOMP:
            assert one.is_received, packet
            del self._in_flight[packet_id]
            self._due.append(topic)
            return
        assert packet.kind is (Kind.PUBACK if self._qos == 1 else Kind.PUBREC), packet
        if packet.code == _REFUSED:
            del self._in_flight[packet_id]
            self._again[topic] = one
            self._due.append(topic)
            self.refused += 1
            return
        assert packet.code in {0, 0x10}, packet
        self._history.end(one.send, Outcome.OK)
        self.last[topic] = one.message.payload
        if self._qos == 1:
            del self._in_flight[packet_id]
            self._due.append(topic)
        elif not one.is_received:
            one.is_received = True
            line.send(wire.ack(Kind.PUBREL, packet_id))


def client_beside(nodes: TwoNodes, name: str, topic: str) -> str:
    """Return a client identifier in the shard of a topic's messages: they move together."""
    found = nodes.kernels[0].topics.get(TopicName("default", "mqtt"))
    number = partition_for_key(topic.encode(), len(found.partition_ids))
    shard = shard_of(found, number, nodes.placements[0])
    names = (f"{name}-{at}" for at in itertools.count())
    return next(one for one in names if shard_of_client("default", one, SHARDS) == shard)


class MovingSubscriber(Subscriber):
    """Subscriber of two nodes."""

    hosts = HOSTS
