"""UNSUBSCRIBE (section 3.10): whether there was a subscription of each filter, as written."""

from typing import TYPE_CHECKING

from adapters.mqtt.codec import encode_unsuback
from adapters.mqtt.errors import MqttError, ReasonCode, reason_code
from adapters.mqtt.filter_work import FILTERS_PER_STEP, serve
from adapters.mqtt.filters import parse_subscription
from adapters.mqtt.refusals import UNSUBACK_CODES, within
from adapters.mqtt.wire import Unsuback, Unsubscribe, Version
from gateway.errors import GatewayError

if TYPE_CHECKING:  # connections know handlers
    from adapters.mqtt.connection import MqttConnection


def handle(connection: "MqttConnection", packet: Unsubscribe) -> None:
    """Unsubscribe, and answer when that is kept."""
    connection.request_began()
    serve(connection, _Work(connection, packet), len(packet.topic_filters))


class _Work:
    """An UNSUBSCRIBE: UNSUBACK goes when all of the change is kept. See ``filter_work``."""

    def __init__(self, connection: "MqttConnection", packet: Unsubscribe) -> None:
        self.is_done = False
        self._connection = connection
        self._packet = packet
        self._codes: list[ReasonCode] = []  # of what was checked
        self._at = 0  # filters before it were unsubscribed
        self._unkept = 1  # steps that are not kept, and the rest of the work
        self._error: GatewayError | None = None

    def step(self) -> None:
        """See ``FilterWork``."""
        filters, session = self._packet.topic_filters, self._connection.session
        at = len(self._codes)
        if at < len(filters):
            self._codes += map(self._check, filters[at : at + FILTERS_PER_STEP])
            return
        assert session is not None
        step = range(self._at, min(self._at + FILTERS_PER_STEP, len(filters)))
        valid = [index for index in step if self._codes[index] is ReasonCode.SUCCESS]
        self._unkept += 1
        existed = session.unsubscribe([filters[index] for index in valid], self._on_kept)
        for index, did_exist in zip(valid, existed, strict=True):
            if not did_exist:
                self._codes[index] = ReasonCode.NO_SUBSCRIPTION_EXISTED
        self._at = step.stop
        self.is_done = self._at == len(filters)
        if self.is_done:
            self._end_step()

    def _check(self, text: str) -> ReasonCode:
        connection = self._connection
        try:
            parse_subscription(text, levels_max=connection.config.topic_levels_max)
        except MqttError as error:
            if connection.version is not Version.V5:
                raise  # a violation closes (3.1.1: MQTT-4.8.0-1)
            return error.reason_code
        return ReasonCode.SUCCESS

    def _on_kept(self, error: GatewayError | None) -> None:
        self._error = self._error or error
        self._end_step()

    def _end_step(self) -> None:
        self._unkept -= 1
        if not self._unkept:
            self._connection.guard(self._send)

    def _send(self) -> None:
        connection = self._connection
        if connection.is_closing:
            return
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
        connection.request_ended()
