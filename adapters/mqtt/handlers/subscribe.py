"""SUBSCRIBE (section 3.8): a reason code for each filter; retained messages follow SUBACK."""

from collections.abc import Callable
from functools import partial
from typing import Final

from adapters.mqtt.codec import encode_suback
from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.errors import MqttError, ReasonCode, reason_code
from adapters.mqtt.handlers.filter_work import serve
from adapters.mqtt.packets.refusal_packets import SUBACK_CODES, within
from adapters.mqtt.subscriptions.filters import filter_bytes, parse_subscription
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.wire import Suback, Subscribe, SubscriptionRequest, Version
from gateway.errors import GatewayError, public_text

FAILURE: Final = 0x80  # from here on a code is no granted QoS
Item = tuple[Subscription, bool]

_RETAINED_IF_NEW: Final = 1
_RETAINED_NEVER: Final = 2


def handle(connection: MqttConnection, packet: Subscribe) -> None:
    """Subscribe to the allowed filters. Errors: ``MqttError`` for a shared one with No Local."""
    serve(connection, _SubscribeWork(connection, packet), len(packet.requests))


class _SubscribeWork:
    """A SUBSCRIBE. See ``FilterWork``."""

    def __init__(self, connection: MqttConnection, packet: Subscribe) -> None:
        self._connection = connection
        self._packet = packet
        self._parsed: list[tuple[str | None, str] | None] = []  # None: no filter
        self._codes: list[int] = []
        self._items: list[Item] = []
        self._why = ""  # the first refusal, for people to read

    def check(self, step: slice) -> None:
        """See ``FilterWork``."""
        self._parsed += map(self._parse, self._packet.requests[step])

    def take(self, step: slice, on_kept: Callable[[], None]) -> None:
        """See ``FilterWork``."""
        session = self._connection.session
        assert session is not None
        items = self._decide(self._packet.requests[step], self._parsed[step])
        if items:
            session.subscribe(items, partial(self._kept, step, items, on_kept))
        else:
            on_kept()

    def _parse(self, request: SubscriptionRequest) -> tuple[str | None, str] | None:
        levels_max = self._connection.config.topic_levels_max
        try:
            group, topic_filter = parse_subscription(
                request.topic_filter, levels_max=levels_max
            )
        except MqttError as error:
            if self._connection.version is not Version.V5:
                raise  # a violation closes (3.1.1: MQTT-4.8.0-1)
            self._why = self._why or public_text(error)
            return None
        if group is not None and request.no_local:
            msg = "No Local on a shared subscription"  # MQTT-3.8.3-4
            raise MqttError(ReasonCode.PROTOCOL_ERROR, msg)
        return group, topic_filter

    def _decide(
        self,
        requests: tuple[SubscriptionRequest, ...],
        parsed: list[tuple[str | None, str] | None],
    ) -> list[Item]:
        """Add the codes of some filters; return what is subscribed to."""
        items = []
        added: set[str] = set()
        added_bytes = 0
        for request, found in zip(requests, parsed, strict=True):
            if found is None:
                self._codes.append(ReasonCode.TOPIC_FILTER_INVALID)
                continue
            text = request.topic_filter
            size_bytes = filter_bytes(text)
            is_new = text not in added and self._is_new(text)
            refusal = self._refusal(*found)
            if refusal is None and is_new:
                refusal = self._quota_refusal(len(added), added_bytes + size_bytes)
            if refusal is not None:
                self._codes.append(refusal)
                continue
            if is_new:
                added.add(text)
                added_bytes += size_bytes
            self._codes.append(request.qos)
            items.append(self._item(request, *found, is_new=is_new))
        return items

    def _is_new(self, text: str) -> bool:
        assert self._connection.session is not None
        return text not in self._connection.session.subscriptions

    def _refusal(self, group: str | None, topic_filter: str) -> ReasonCode | None:
        access = self._connection.access
        assert access is not None
        if access.may_subscribe(topic_filter, is_shared=group is not None):
            return None
        self._why = self._why or f"may not subscribe to {topic_filter[:80]!r}"
        return ReasonCode.NOT_AUTHORIZED

    def _quota_refusal(self, added: int, added_bytes: int) -> ReasonCode | None:
        """Return the refusal of one more filter at a limit, if any; ``added_bytes`` includes it."""
        session, limits = self._connection.session, self._connection.config.session
        assert session is not None
        if len(session.subscriptions) + added >= limits.subscriptions_max:
            self._why = self._why or "session.subscriptions_max is reached"
        elif session.filter_bytes + added_bytes > limits.filter_bytes_max:
            self._why = self._why or "session.filter_bytes_max is reached"
        else:
            return None
        return ReasonCode.QUOTA_EXCEEDED

    def _item(
        self,
        request: SubscriptionRequest,
        group: str | None,
        topic_filter: str,
        *,
        is_new: bool,
    ) -> Item:
        """Return a subscription, and whether retained messages go with it (section 3.8.3.1)."""
        handling = request.retain_handling
        subscription = Subscription(
            topic_filter,
            group=group,
            qos=request.qos,
            no_local=request.no_local,
            retain_as_published=request.retain_as_published,
            retain_handling=handling,
            identifier=self._packet.subscription_identifier or 0,
        )
        may_send = group is None and (
            handling < _RETAINED_IF_NEW or (handling < _RETAINED_NEVER and is_new)
        )
        return subscription, may_send

    def _kept(
        self,
        step: slice,
        items: list[Item],
        on_kept: Callable[[], None],
        error: GatewayError | None,
    ) -> None:
        if error is None:
            self._items += items
        else:
            code = within(SUBACK_CODES, reason_code(error))
            for index in range(*step.indices(len(self._codes))):
                if self._codes[index] < FAILURE:
                    self._codes[index] = code
            self._why = public_text(error)
        on_kept()

    def answer(self) -> None:
        """See ``FilterWork``."""
        connection = self._connection
        assert connection.session is not None
        packet = Suback(
            self._packet.packet_id,
            tuple(self._codes),
            reason_string=self._why if self._why and connection.may_send_reasons else None,
        )
        connection.send_packet(
            encode_suback(packet, connection.version, connection.packet_bytes_max)
        )
        connection.session.after_suback(self._items)
