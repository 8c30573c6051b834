"""Protocol state of one connection: allowed packets, topic aliases and windows.

No event loop, no clock. This state ends with the connection; a ``ClientSession`` outlives it.
"""

from collections.abc import Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.wire import (
    AckRun,
    Auth,
    Connect,
    Disconnect,
    MixedTopicPublishes,
    Pingreq,
    PublishProperties,
    PublishRun,
    Subscribe,
    Unsubscribe,
    Version,
)


class State(Enum):
    """State of a connection."""

    AWAIT_CONNECT = auto()
    AUTHENTICATING = auto()  # CONNECT was taken, CONNACK has not been sent
    CONNECTED = auto()
    CLOSED = auto()


ALLOWED_PACKETS: Final[Mapping[State, frozenset[type[Any]]]] = {
    # MQTT-3.1.0-1: the first packet is CONNECT.
    State.AWAIT_CONNECT: frozenset({Connect}),
    # MQTT-3.1.2-30: with an authentication method, only these come before CONNACK. Without one,
    # packets that come early wait, and are served when the state is CONNECTED.
    State.AUTHENTICATING: frozenset({Auth, Disconnect}),
    State.CONNECTED: frozenset(
        {
            PublishRun,
            MixedTopicPublishes,
            AckRun,
            Subscribe,
            Unsubscribe,
            Pingreq,
            Auth,
            Disconnect,
        }
    ),
    State.CLOSED: frozenset(),
}
"""Packets that a client may send in a state; handlers move the connection to another state."""


class InboundAliases:
    """Topic aliases that a client has set; they end with its connection (MQTT-3.3.2-7)."""

    __slots__ = ("_topics", "alias_max")

    def __init__(self, alias_max: int) -> None:
        self.alias_max = alias_max
        self._topics: dict[int, bytes] = {}

    def resolve(self, alias: int, topic: bytes) -> bytes:
        """Return the topic of an alias, and set the alias when a topic came with it.

        Errors: 0x94 for an alias of 0 or above ``alias_max`` (MQTT-3.3.2-8, MQTT-3.3.2-9); 0x82
        for one that was never set, with no topic beside it (section 3.3.2.3.4).
        """
        if not 0 < alias <= self.alias_max:
            msg = f"topic alias {alias} is not 1 to {self.alias_max}"
            raise MqttError(ReasonCode.TOPIC_ALIAS_INVALID, msg)
        if topic:
            self._topics[alias] = topic
            return topic
        known = self._topics.get(alias)
        if known is None:
            msg = f"topic alias {alias} was not set on this connection"
            raise MqttError(ReasonCode.PROTOCOL_ERROR, msg)
        return known


@lru_cache(maxsize=1024)
def without_alias(properties: PublishProperties) -> PublishProperties:
    """Return the properties without the alias, which belongs to one hop (MQTT-3.3.2-11)."""
    return properties._replace(topic_alias=None)


class InboundWindow:
    """QoS 1 and 2 messages on their way from the client (section 4.9).

    Each connection has a window of its own: messages of an earlier connection do not count.
    ``count_max`` binds 5.0 only, as CONNACK of 3.x has no field for it.
    """

    __slots__ = ("_qos1_count", "_qos2_ids", "count_max")

    def __init__(self, version: Version, count_max: int) -> None:
        self.count_max = count_max if version is Version.V5 else 2 * 65_535
        self._qos1_count = 0
        self._qos2_ids: set[int] = set()

    @property
    def count(self) -> int:
        """Number of messages that are not acknowledged (QoS 2: complete)."""
        return self._qos1_count + len(self._qos2_ids)

    @property
    def has_exactly_once(self) -> bool:
        """Whether QoS 2 messages have come that are not complete."""
        return bool(self._qos2_ids)

    def open(self, run: PublishRun | MixedTopicPublishes) -> None:
        """Count a run of QoS 1 or 2; a QoS 2 message sent twice counts once (MQTT-3.3.4-7).

        Error: 0x93 when the client sends more than the Receive Maximum (MQTT-3.3.4-9).
        """
        if run.qos == 1:
            self._qos1_count += len(run.packet_ids)
        else:
            self._qos2_ids.update(run.packet_ids)
        if self._qos1_count + len(self._qos2_ids) > self.count_max:
            msg = f"{self.count} messages without an acknowledgement, above {self.count_max}"
            raise MqttError(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, msg)

    def has_room(self, count: int) -> bool:
        """Return whether ``count`` more QoS 1 messages are within the Receive Maximum."""
        return self.count + count <= self.count_max

    def close(self, run: PublishRun | MixedTopicPublishes) -> None:
        """Remove a run whose last answer was sent: PUBACK, or PUBREC with an error."""
        if run.qos == 1:
            self._qos1_count -= len(run.packet_ids)
        else:
            self._qos2_ids.difference_update(run.packet_ids)

    def release(self, run: AckRun) -> None:
        """Remove QoS 2 messages for which PUBREL has come."""
        self._qos2_ids.difference_update(run.packet_ids)
