"""DISCONNECT (section 3.14): the client goes, with its will or without it."""

from typing import TYPE_CHECKING

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.session import State
from adapters.mqtt.wire import Disconnect

if TYPE_CHECKING:  # connections know handlers
    from adapters.mqtt.connection.connection import MqttConnection


def handle(connection: "MqttConnection", packet: Disconnect) -> None:
    """Close. Error: as ``heed``."""
    heed(connection, packet)
    connection.enter(State.CLOSED)
    connection.close()


def heed(connection: "MqttConnection", packet: Disconnect) -> None:
    """Do as it says of the session and the will, also when the client has closed meanwhile.

    Only reason code 0 takes the will along (MQTT-3.14.4-3, MQTT-3.1.2-10). Error: 0x82 when a
    session that was to end with its connection is to be kept now (section 3.14.2.2.2).
    """
    expiry_s = packet.session_expiry_interval
    asked = connection.connect
    assert asked is not None
    if expiry_s is not None:
        if expiry_s and not asked.session_expiry_interval:
            msg = "a session expiry interval of 0 may not be raised by DISCONNECT"
            raise MqttError(ReasonCode.PROTOCOL_ERROR, msg)
        connection.session_expiry_interval = min(
            expiry_s, connection.config.session.expiry_s_max
        )
    if packet.reason_code is ReasonCode.SUCCESS:
        connection.with_will = False
