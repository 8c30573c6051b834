"""DISCONNECT (section 3.14): its effect on the session and the will."""

from typing import Protocol

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.wire import Connect, Disconnect


class LeavingConnection(Protocol):
    """The connection of a client that goes."""

    config: MqttConfig
    connect: Connect | None
    session_expiry_interval: int | None
    with_will: bool


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
