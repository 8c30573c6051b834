"""DISCONNECT (section 3.14): end of the connection, with or without the will."""

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.connection.disconnect import apply_disconnect
from adapters.mqtt.session import State
from adapters.mqtt.wire import Disconnect


def handle(connection: MqttConnection, packet: Disconnect) -> None:
    """Close. Error: as ``apply_disconnect``."""
    apply_disconnect(connection, packet)
    connection.enter(State.CLOSED)
    connection.close()
