"""UNSUBSCRIBE (section 3.10): whether there was a subscription of each filter, as written."""

from collections.abc import Callable
from functools import partial

from adapters.mqtt.codec import encode_unsuback
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.errors import MqttError, ReasonCode, reason_code
from adapters.mqtt.handlers.filter_work import serve
from adapters.mqtt.packets.refusal_packets import UNSUBACK_CODES, within
from adapters.mqtt.subscriptions.filters import parse_subscription
from adapters.mqtt.wire import Unsuback, Unsubscribe, Version
from gateway.errors import GatewayError


def handle(connection: MqttConnection, packet: Unsubscribe) -> None:
    """Unsubscribe, and answer when that is kept."""
    serve(connection, _UnsubscribeWork(connection, packet), len(packet.topic_filters))


class _UnsubscribeWork:
    """An UNSUBSCRIBE. See ``FilterWork``."""

    def __init__(self, connection: MqttConnection, packet: Unsubscribe) -> None:
        self._connection = connection
        self._packet = packet
        self._codes: list[ReasonCode] = []
        self._error: GatewayError | None = None

    def check(self, step: slice) -> None:
        """See ``FilterWork``."""
        self._codes += map(self._check, self._packet.topic_filters[step])

    def take(self, step: slice, on_kept: Callable[[], None]) -> None:
        """See ``FilterWork``."""
        session, codes = self._connection.session, self._codes
        filters = self._packet.topic_filters
        assert session is not None
        indexes = range(*step.indices(len(filters)))
        valid = [at for at in indexes if codes[at] is ReasonCode.SUCCESS]
        existed = session.unsubscribe(
            [filters[at] for at in valid], partial(self._kept, on_kept)
        )
        for at, did_exist in zip(valid, existed, strict=True):
            if not did_exist:
                codes[at] = ReasonCode.NO_SUBSCRIPTION_EXISTED

    def _check(self, text: str) -> ReasonCode:
        connection = self._connection
        try:
            parse_subscription(text, levels_max=connection.config.topic_levels_max)
        except MqttError as error:
            if connection.version is not Version.V5:
                raise  # a violation closes (3.1.1: MQTT-4.8.0-1)
            return error.reason_code
        return ReasonCode.SUCCESS

    def _kept(self, on_kept: Callable[[], None], error: GatewayError | None) -> None:
        self._error = self._error or error
        on_kept()

    def answer(self) -> None:
        """See ``FilterWork``."""
        connection = self._connection
        if self._error is not None:
            if connection.version is not Version.V5:  # its UNSUBACK can only say yes
                connection.fail(self._error)
                return
            code = within(UNSUBACK_CODES, reason_code(self._error))
            self._codes = [code] * len(self._codes)
        packet = Unsuback(self._packet.packet_id, tuple(self._codes))
        connection.send_packet(
            encode_unsuback(packet, connection.version, connection.packet_bytes_max)
        )
