"""SUBSCRIBE (section 3.8): a reason code for each filter; retained messages follow SUBACK."""

from typing import TYPE_CHECKING, Final

from adapters.mqtt.codec import encode_suback
from adapters.mqtt.errors import MqttError, ReasonCode, reason_code
from adapters.mqtt.filters import parse_subscription
from adapters.mqtt.refusals import SUBACK_CODES, within
from adapters.mqtt.subscription import Subscription
from adapters.mqtt.wire import Suback, Subscribe, SubscriptionRequest, Version
from gateway.errors import GatewayError

if TYPE_CHECKING:  # connections know handlers
    from adapters.mqtt.connection import MqttConnection

FAILURE: Final = 0x80  # from here on a code is no granted QoS
Item = tuple[Subscription, bool]

_RETAINED_IF_NEW: Final = 1
_RETAINED_NEVER: Final = 2


def handle(connection: "MqttConnection", packet: Subscribe) -> None:
    """Subscribe to what is allowed. Errors: ``MqttError`` for a shared one with No Local."""
    answer = _Answer(connection, packet.packet_id)
    added: set[str] = set()
    for request in packet.requests:
        try:
            item = _item(connection, packet, request, added)
        except _Refused as refused:
            answer.codes.append(refused.code)
            answer.why = answer.why or str(refused)
        else:
            answer.codes.append(request.qos)
            answer.items.append(item)
    connection.request_began()
    if answer.items:
        assert connection.session is not None
        connection.session.subscribe(answer.items, answer.on_kept)
    else:
        answer.on_kept(None)


class _Refused(Exception):
    """One filter is not subscribed to; the others are."""

    def __init__(self, code: ReasonCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def _item(
    connection: "MqttConnection",
    packet: Subscribe,
    request: SubscriptionRequest,
    added: set[str],
) -> Item:
    """Return the subscription, and whether retained messages go with it (section 3.8.3.1)."""
    session, access = connection.session, connection.access
    assert session is not None
    assert access is not None
    text = request.topic_filter
    config = connection.config
    try:
        group, topic_filter = parse_subscription(text, levels_max=config.topic_levels_max)
    except MqttError as error:
        if connection.version is not Version.V5:  # a violation closes (3.1.1: MQTT-4.8.0-1)
            raise
        raise _Refused(error.reason_code, str(error)) from error
    if group is not None and request.no_local:
        msg = "No Local on a shared subscription"  # MQTT-3.8.3-4
        raise MqttError(ReasonCode.PROTOCOL_ERROR, msg)
    if not access.may_subscribe(topic_filter):
        raise _Refused(ReasonCode.NOT_AUTHORIZED, f"may not subscribe to {topic_filter[:80]!r}")
    is_new = text not in session.subscriptions and text not in added
    count = len(session.subscriptions) + len(added)
    if is_new and count >= config.session.subscriptions_max:
        raise _Refused(ReasonCode.QUOTA_EXCEEDED, "session.subscriptions_max is reached")
    if is_new:
        added.add(text)
    subscription = Subscription(
        topic_filter,
        group=group,
        qos=request.qos,
        no_local=request.no_local,
        retain_as_published=request.retain_as_published,
        retain_handling=request.retain_handling,
        identifier=packet.subscription_identifier or 0,
    )
    handling = request.retain_handling
    may_send = group is None and (
        handling < _RETAINED_IF_NEW or (handling < _RETAINED_NEVER and is_new)
    )
    return subscription, may_send


class _Answer:
    """SUBACK on its way: it goes when the subscriptions are kept."""

    __slots__ = ("codes", "connection", "items", "packet_id", "why")

    def __init__(self, connection: "MqttConnection", packet_id: int) -> None:
        self.connection = connection
        self.packet_id = packet_id
        self.codes: list[int] = []
        self.items: list[Item] = []
        self.why = ""  # the first refusal, for people to read

    def on_kept(self, error: GatewayError | None) -> None:
        self.connection.guard(self._send, error)

    def _send(self, error: GatewayError | None) -> None:
        connection = self.connection
        if connection.session is None or connection.is_closing:
            return
        if error is not None:
            code = within(SUBACK_CODES, reason_code(error))
            self.codes = [one if one >= FAILURE else code for one in self.codes]
            self.items, self.why = [], str(error)
        packet = Suback(
            self.packet_id,
            tuple(self.codes),
            reason_string=self.why if self.why and connection.tells_problems else None,
        )
        connection.send_packet(
            encode_suback(packet, connection.version, connection.packet_bytes_max)
        )
        connection.session.after_suback(self.items)
        connection.request_ended()
