"""How much of what a client sends is looked at in one go."""

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.packets.framing import ConnectMax, PacketReader


def new_reader(config: MqttConfig) -> PacketReader:
    """Return the reader of a connection, with the bounds of the config."""
    return PacketReader(
        config.packet_bytes_max,
        config.packet_filters_max,
        connect_max=ConnectMax(config.connect_bytes_max, config.connect_properties_max),
        properties_max=config.packet_properties_max,
    )
