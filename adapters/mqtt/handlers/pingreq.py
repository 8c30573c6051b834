"""PINGREQ (section 3.12)."""

from adapters.mqtt.codec import PINGRESP
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.wire import Pingreq


def handle(connection: MqttConnection, packet: Pingreq) -> None:  # noqa: ARG001 - says nothing
    """Answer (MQTT-3.12.4-1)."""
    connection.send_packet(PINGRESP)
