"""Reader of a connection: the bytes of a client that one turn of the loop looks at.

The event loop reads a socket up to 32 times in one turn while each read fills its buffer. After
such a read, and after a slice of one (see ``PacketReader.is_cut``), others come first.
"""

from typing import Final

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.packets.framing import ConnectMax, PacketReader

FULL_READ_BYTES: Final = (
    128 * 1024
)  # less than any buffer of a read that may be followed at once
TURN: Final = "turn"  # why reads are held


def new_reader(config: MqttConfig) -> PacketReader:
    """Return the reader of a connection, with the bounds of the config."""
    return PacketReader(
        config.packet_bytes_max,
        config.packet_filters_max,
        connect_max=ConnectMax(config.connect_bytes_max, config.connect_properties_max),
        properties_max=config.packet_properties_max,
    )
