"""UNSUBSCRIBE (section 3.10): whether there was a subscription of each filter, as written."""

from typing import TYPE_CHECKING

from adapters.mqtt.codec import encode_unsuback
from adapters.mqtt.errors import MqttError, ReasonCode, reason_code
from adapters.mqtt.filters import parse_subscription
from adapters.mqtt.refusals import UNSUBACK_CODES, within
from adapters.mqtt.wire import Unsuback, Unsubscribe, Version
from gateway.errors import GatewayError

if TYPE_CHECKING:  # connections know handlers
    from adapters.mqtt.connection import MqttConnection


def handle(connection: "MqttConnection", packet: Unsubscribe) -> None:
    """Unsubscribe, and answer when that is kept."""
    session = connection.session
    assert session is not None
    codes = [_check(connection, text) for text in packet.topic_filters]
    # UNSUBACK waits for what the session says of each filter, and may not wait for nothing.
    answer = _Answer(connection, packet.packet_id, codes)
    connection.request_began()
    valid = [
        text
        for text, code in zip(packet.topic_filters, codes, strict=True)
        if code is ReasonCode.SUCCESS
    ]
    existed = iter(session.unsubscribe(valid, answer.on_kept))
    answer.codes = [
        code
        if code is not ReasonCode.SUCCESS or next(existed)
        else ReasonCode.NO_SUBSCRIPTION_EXISTED
        for code in codes
    ]
    answer.is_known = True
    connection.guard(answer.send_when_ready)


def _check(connection: "MqttConnection", text: str) -> ReasonCode:
    try:
        parse_subscription(text, levels_max=connection.config.topic_levels_max)
    except MqttError as error:
        if connection.version is not Version.V5:  # a violation closes (3.1.1: MQTT-4.8.0-1)
            raise
        return error.reason_code
    return ReasonCode.SUCCESS


class _Answer:
    """UNSUBACK on its way: it goes when the codes are known and the change is kept."""

    def __init__(
        self, connection: "MqttConnection", packet_id: int, codes: list[ReasonCode]
    ) -> None:
        self.codes = codes
        self.is_known = False
        self._connection = connection
        self._packet_id = packet_id
        self._is_kept = False
        self._error: GatewayError | None = None

    def on_kept(self, error: GatewayError | None) -> None:
        self._is_kept, self._error = True, error
        self._connection.guard(self.send_when_ready)

    def send_when_ready(self) -> None:
        connection = self._connection
        if not (self.is_known and self._is_kept) or connection.is_closing:
            return
        if self._error is not None:
            if connection.version is not Version.V5:  # its UNSUBACK can only say yes
                connection.fail(self._error)
                return
            code = within(UNSUBACK_CODES, reason_code(self._error))
            self.codes = [code] * len(self.codes)
        self._is_kept = False  # once
        packet = Unsuback(self._packet_id, tuple(self.codes))
        connection.send_packet(
            encode_unsuback(packet, connection.version, connection.packet_bytes_max)
        )
        connection.request_ended()
