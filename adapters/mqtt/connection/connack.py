"""CONNACK (section 3.2): the requested values, and those that the server grants."""

import re
from typing import Final, NamedTuple

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.packets.primitives import TEXT_BYTES_MAX
from adapters.mqtt.wire import PACKET_ID_MAX, Connack, Connect, Version

_NO_LEVEL: Final = re.compile(r"[+#\0]")


class Agreed(NamedTuple):
    """Values agreed for a connection; spans in seconds."""

    client_id: str
    session_expiry_interval: int
    keep_alive: int
    authentication_data: bytes | None


def connack(asked: Connect, agreed: Agreed, config: MqttConfig, *, is_present: bool) -> Connack:
    """Return the packet that accepts a client, without values that are requested or default ones.

    It has the client identifier only when the server assigned it (MQTT-3.2.2-16), and session
    expiry and keep alive only when they differ from the request (3.2.2.3.2, MQTT-3.2.2-21). It
    never has Maximum QoS, Retain Available and the properties about subscriptions: all of these
    are available, which their absence means (3.2.2.3.4 and following). So a client with a Maximum
    Packet Size of 16 can connect.
    """
    if asked.version is not Version.V5:
        return Connack(session_present=is_present)
    receive_max = config.session.receive_max
    expiry = agreed.session_expiry_interval
    return Connack(
        session_present=is_present,
        session_expiry_interval=expiry if expiry != asked.session_expiry_interval else None,
        receive_maximum=receive_max if receive_max < PACKET_ID_MAX else None,
        maximum_packet_size=config.packet_bytes_max,
        assigned_client_identifier=None if asked.client_id else agreed.client_id,
        topic_alias_maximum=config.topic_alias_max or None,
        server_keep_alive=agreed.keep_alive if agreed.keep_alive != asked.keep_alive else None,
        response_information=_response_information(asked, agreed.client_id),
        authentication_method=asked.authentication_method,
        authentication_data=agreed.authentication_data,
    )


def _response_information(asked: Connect, client_id: str) -> str | None:
    """Return the topic prefix for a client's responses (section 3.2.2.3.15), if it asked for one.

    None for a client identifier that cannot be a level of a topic name, or is too long.
    """
    if not asked.request_response_information or _NO_LEVEL.search(client_id):
        return None
    topic = f"responses/{client_id}"
    return topic if len(topic.encode()) <= TEXT_BYTES_MAX else None


class ConnectRate:
    """Limit on connections per second; a burst of one second's worth is let through."""

    def __init__(self, per_s_max: int) -> None:
        self._per_s_max = per_s_max
        self._left = float(per_s_max)
        self._at_ms = 0

    def take(self, now_ms: int) -> bool:
        """Say whether one more may come at that (monotonic) time."""
        gained = (now_ms - self._at_ms) * self._per_s_max / 1_000
        self._left = min(self._left + gained, float(self._per_s_max))
        self._at_ms = now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True
