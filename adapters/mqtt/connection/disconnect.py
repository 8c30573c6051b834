"""DISCONNECT (section 3.14): its effect on the session and the will."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.wire import Connect, Disconnect, Packet, PublishRun


class LeavingConnection(Protocol):
    """The connection of a client that goes."""

    config: MqttConfig
    connect: Connect | None
    session_expiry_interval: int | None
    with_will: bool

    def guard(self, work: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401
        """Run ``work``; an error closes the connection."""
        ...


def drop_queued(connection: LeavingConnection, packets: Iterable[Packet]) -> int:
    """Drop packets that were read and not served; return how many messages of QoS 0 are lost.

    DISCONNECT is applied.
    """
    lost = 0
    for packet in packets:
        if isinstance(packet, PublishRun) and not packet.qos:
            lost += len(packet.payloads)
        elif isinstance(packet, Disconnect):
            connection.guard(apply_disconnect, connection, packet)
    return lost


def apply_disconnect(connection: LeavingConnection, packet: Disconnect) -> None:
    """Apply DISCONNECT to the session and the will, also when the client has closed meanwhile.

    Only reason code 0 removes the will (MQTT-3.14.4-3, MQTT-3.1.2-10). Error: 0x82 when a
    session that was to end with its connection is to be kept now (section 3.14.2.2.2).
    """
    expiry_s = packet.session_expiry_interval
    asked = connection.connect
    assert asked is not None
    if expiry_s is not None:
        if expiry_s and not asked.session_expiry_interval:
            msg = "a session expiry interval of 0 may not be raised by DISCONNECT"
            raise MqttError(ReasonCode.PROTOCOL_ERROR, msg)
        expiry_s_max = connection.config.session.expiry_s_max
        connection.session_expiry_interval = min(expiry_s, expiry_s_max)
    if packet.reason_code is ReasonCode.SUCCESS:
        connection.with_will = False
