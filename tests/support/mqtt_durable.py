"""MQTT clients that come back to their session whenever the gateway dies, and judge what they see.

With several hosts they go to the next one when a node says that another serves their session.

They keep what the specification has a client keep (section 4.1): a publisher resends with DUP and
the same identifier what was not acknowledged, a subscriber remembers QoS 2 identifiers until
PUBREL. Identifiers are taken again as soon as they are free, so that a server which remembers one
too long is caught.
"""

import heapq
import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.support import mqtt_wire as wire
from tests.support.history import History, Outcome
from tests.support.mqtt_raw import RawClient
from tests.support.mqtt_wire import V5, Kind, Prop, Received

SESSION_EXPIRY_S: Final = 3_600
_READ_S: Final = 0.02
_COME_BACK_S: Final = 0.005
_FINISH_S_MAX: Final = 60.0
_WINDOW: Final = 16
_PACKET_IDS: Final = 24
_PER_TURN_MAX: Final = 4
_LAG_MAX: Final = 30
_RECEIVE_MAXIMUM: Final = 50
_NOT_HERE: Final = {0x9C, 0x88, 0x89, 3}


class Message(NamedTuple):
    """One message of the load: its publisher, topic, and number there, from 0 on."""

    publisher: str
    topic: str
    number: int

    @property
    def payload(self) -> bytes:
        """Return the payload to send; ``parse`` reads it."""
        return f"{self.publisher} {self.topic} {self.number}".encode()


def parse(payload: bytes) -> Message:
    """Return the message that a payload says it is."""
    publisher, topic, number = payload.decode().split()
    return Message(publisher, topic, int(number))


class Line(RawClient):
    """A connection whose packets are taken as they come."""

    def read(self) -> list[Received] | None:
        """Return the packets that have come, after a short wait; None at the end."""
        self.socket.settimeout(_READ_S)
        try:
            some = self.socket.recv(1 << 16)
        except TimeoutError:
            return []
        except OSError:
            return None
        self._buffer += some
        found = []
        while (one := self._cut()) is not None:
            found.append(one)
        return found if found or some else None


class DurableClient:
    """A thread that connects, serves its connection until it ends, and connects again."""

    hosts: tuple[str, ...] = ("127.0.0.1",)

    def __init__(self, port: int, client_id: str, *, version: int) -> None:
        self.client_id = client_id
        self.moves = 0
        self.version = version
        self.failures: list[str] = []
        self.connections = 0
        self._port = port
        self._has_session = False
        self._finishing = threading.Event()
        self._is_abandoned = False
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)

    def start(self) -> None:
        """Connect, and go on until ``finish``."""
        self._thread.start()

    def finish(self) -> None:
        """Bring everything to its end, then go."""
        self._finishing.set()
        self._thread.join(_FINISH_S_MAX)
        assert self.failures == []
        assert not self._thread.is_alive(), f"{self.client_id} does not come to its end: {self}"

    def abandon(self) -> None:
        """Go at once, with nothing brought to its end, if it was started."""
        self._is_abandoned = True
        self._finishing.set()
        if self._thread.ident is not None:
            self._thread.join(_FINISH_S_MAX)

    def _is_over(self) -> bool:
        return self._is_abandoned or self._is_finished()

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._serve_one_connection()
        except AssertionError as error:
            self.failures.append(f"{self.client_id}, connection {self.connections}: {error}")

    def _serve_one_connection(self) -> None:
        try:
            host = self.hosts[self.moves % len(self.hosts)]
            line = Line(self._port, host=host, version=self.version)
        except OSError:
            self._finishing.wait(_COME_BACK_S)
            return
        with line:
            line.send(
                wire.connect(
                    self.client_id,
                    version=self.version,
                    clean=False,
                    found=[
                        (Prop.SESSION_EXPIRY, SESSION_EXPIRY_S),
                        (Prop.RECEIVE_MAXIMUM, _RECEIVE_MAXIMUM),
                    ],
                )
            )
            while (packets := line.read()) is not None and not self._is_over():
                for packet in packets:
                    if self._is_sent_away(packet):
                        self.is_connected = False
                        self._finishing.wait(_COME_BACK_S)
                        return
                    self._take(line, packet)
                if self.is_connected:
                    self._turn(line)
            self.is_connected = False

    is_connected = False

    def _is_sent_away(self, packet: Received) -> bool:
        """Go to the next host, when this one does not serve the session."""
        if len(self.hosts) == 1 or packet.kind not in {Kind.CONNACK, Kind.DISCONNECT}:
            return False
        if packet.kind is Kind.CONNACK and not packet.code:
            return False
        assert packet.code in _NOT_HERE, packet
        self.moves += 1
        return True

    def _take(self, line: Line, packet: Received) -> None:
        if packet.kind is Kind.CONNACK:
            assert packet.code == 0, packet
            is_as_known = packet.session_present == self._has_session
            # A node may have made the session, and sent the client away before CONNACK.
            assert is_as_known or (self.moves and packet.session_present), packet
            self.is_connected = True
            self.connections += 1
            self._begin(line)
        else:
            assert self.is_connected, packet
            self._serve(line, packet)

    def _is_finished(self) -> bool:
        raise NotImplementedError

    def _begin(self, line: Line) -> None:
        raise NotImplementedError

    def _serve(self, line: Line, packet: Received) -> None:
        raise NotImplementedError

    def _turn(self, line: Line) -> None:
        raise NotImplementedError


class Publisher(DurableClient):
    """Publishes numbered messages to its topics; ``acknowledged`` are those it need not resend."""

    def __init__(
        self,
        port: int,
        client_id: str,
        *,
        topics: tuple[str, ...],
        qos: int,
        version: int = V5,
        retain: bool = False,
        history: History | None = None,
    ) -> None:
        super().__init__(port, client_id, version=version)
        self._history = History() if history is None else history
        self.topics = topics
        self.qos = qos
        self.sent = dict.fromkeys(topics, 0)
        self.acknowledged: list[Message] = []
        self.resent = 0
        self._retain = retain
        self._free_ids = list(range(1, _PACKET_IDS + 1))
        self._sent: dict[int, Message] = {}
        self._released: dict[int, None] = {}  # PUBREC has come
        self._turns = 0

    def __repr__(self) -> str:
        return f"{self._sent} sent, {list(self._released)} released"

    def all_sent(self) -> list[Message]:
        """Return all that was published, by topic."""
        return [
            Message(self.client_id, topic, number)
            for topic, count in self.sent.items()
            for number in range(count)
        ]

    def _is_finished(self) -> bool:
        return self._finishing.is_set() and not (self._sent or self._released)

    def _begin(self, line: Line) -> None:
        self._has_session = True
        self.resent += len(self._sent)
        for packet_id in self._released:
            line.send(wire.ack(Kind.PUBREL, packet_id))
        for packet_id, message in self._sent.items():
            self._publish(line, packet_id, message, dup=True)

    def _turn(self, line: Line) -> None:
        for _ in range(_PER_TURN_MAX):
            if self._finishing.is_set() or len(self._sent) >= _WINDOW or not self._free_ids:
                return
            topic = self.topics[self._turns % len(self.topics)]
            self._turns += 1
            packet_id = heapq.heappop(self._free_ids)
            message = Message(self.client_id, topic, self.sent[topic])
            self.sent[topic] += 1
            self._sent[packet_id] = message
            self._history.send(self.client_id, topic, message.payload, qos=self.qos)
            self._publish(line, packet_id, message, dup=False)

    def _publish(self, line: Line, packet_id: int, message: Message, *, dup: bool) -> None:
        line.send(
            wire.publish(
                message.topic,
                message.payload,
                qos=self.qos,
                packet_id=packet_id,
                dup=dup,
                retain=self._retain,
                version=self.version,
            )
        )

    def _serve(self, line: Line, packet: Received) -> None:
        packet_id = packet.packet_id
        if packet.kind is Kind.PUBCOMP:
            assert packet_id in self._released, packet
            del self._released[packet_id]
            heapq.heappush(self._free_ids, packet_id)
            return
        assert packet.kind is (Kind.PUBACK if self.qos == 1 else Kind.PUBREC), packet
        assert packet.code in {0, 0x10}, packet
        message = self._sent.pop(packet_id)
        self.acknowledged.append(message)
        self._history.end(self._history.find(message.payload), Outcome.OK)
        if self.qos == 1:
            heapq.heappush(self._free_ids, packet_id)
        else:
            self._released[packet_id] = None
            line.send(wire.ack(Kind.PUBREL, packet_id))


class Subscriber(DurableClient):
    """Takes what its filters bring; acknowledges late, so that a kill meets much on its way."""

    def __init__(
        self,
        port: int,
        client_id: str,
        *,
        filters: tuple[str, ...],
        qos: int,
        version: int = V5,
        history: History | None = None,
    ) -> None:
        super().__init__(port, client_id, version=version)
        self._history = History() if history is None else history
        self.came: list[Message] = []
        self.redelivered = 0
        self.unmarked = 0  # QoS 1, came again without DUP
        self._filters = filters
        self.qos = qos
        self._chooser = random.Random(client_id)
        self._lag = 0
        self._unacknowledged: dict[int, Message] = {}  # of QoS 1, of all connections
        self._held: dict[int, Message] = {}  # of QoS 2, until PUBREL
        self._to_answer: deque[Received] = deque()
        self._last: dict[tuple[str, str], int] = {}  # numbers of this connection

    def __repr__(self) -> str:
        return f"{self._unacknowledged} unacknowledged, {self._held} held"

    @property
    def is_subscribed(self) -> bool:
        """SUBACK has come: from now on nothing may be missed."""
        return self._has_session

    def _is_finished(self) -> bool:
        is_open = self._unacknowledged or self._held or self._to_answer
        return self._finishing.is_set() and not is_open

    def _begin(self, line: Line) -> None:
        self._to_answer.clear()
        self._last.clear()
        if self._filters[0].startswith("$share/"):
            # What a crash forgets to have left at QoS 1 may be dealt out to another member.
            self._unacknowledged.clear()
        self._lag = self._chooser.randrange(_LAG_MAX)
        if not self._has_session:
            filters = [(one, self.qos) for one in self._filters]
            line.send(wire.subscribe(1, filters, version=self.version))

    def _serve(self, line: Line, packet: Received) -> None:
        if packet.kind is Kind.SUBACK:
            assert packet.codes == [self.qos] * len(self._filters), packet
            self._has_session = True
        elif packet.kind is Kind.PUBREL:
            self._held.pop(packet.packet_id, None)
            line.send(wire.ack(Kind.PUBCOMP, packet.packet_id))
        else:
            assert packet.kind is Kind.PUBLISH, packet
            self._came(packet)

    def _came(self, packet: Received) -> None:
        message = parse(packet.payload)
        assert packet.topic == message.topic, packet
        known = self._held if packet.qos == 2 else self._unacknowledged
        before = known.get(packet.packet_id)
        if before is None:
            known[packet.packet_id] = message
        else:
            assert before == message, f"{packet.packet_id} was {before}, is {message}"
            self.redelivered += 1
            # What leaves at QoS 1 does not wait for its journal: a crash may forget that it left.
            assert packet.dup or packet.qos == 1, f"{message} again without DUP"
            self.unmarked += not packet.dup
        if before is None or packet.qos == 1:
            self.came.append(message)
            self._history.take(self.client_id, packet.topic, packet.payload, qos=self.qos)
        self._check_order(message)
        self._to_answer.append(packet)

    def _check_order(self, message: Message) -> None:
        """Within a connection nothing goes back (a QoS 1 publisher's resending apart)."""
        if not message.publisher.startswith("once"):
            return
        place = message.publisher, message.topic
        assert message.number > self._last.get(place, -1), (
            f"{message} after {self._last[place]}"
        )
        self._last[place] = message.number

    def _turn(self, line: Line) -> None:
        lag = 0 if self._finishing.is_set() else self._lag
        while len(self._to_answer) > lag:
            packet = self._to_answer.popleft()
            if packet.qos == 2:
                line.send(wire.ack(Kind.PUBREC, packet.packet_id))
            else:
                self._unacknowledged.pop(packet.packet_id, None)
                line.send(wire.ack(Kind.PUBACK, packet.packet_id))


def acknowledged_by(*publishers: Publisher) -> Callable[[], int]:
    """Return a function that says how many messages are acknowledged by now."""
    return lambda: sum(len(publisher.acknowledged) for publisher in publishers)
