"""Publishing: runs of messages with the same method and properties become one append.

A *plan* is all that two runs with the same bytes share: exchange, routing key, headers of the
records. Plans are kept by those bytes, so that a publisher which sends the same kind of message
again pays for its decoding once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from adapters.amqp.mapping import parse_expiration, to_headers, without_bcc
from adapters.amqp.names import to_topic_name
from adapters.amqp.replies import REPLY_PREFIX, REPLY_TO
from adapters.amqp.v091.confirms import Pending
from adapters.amqp.v091.errors import AmqpFault, ReplyCode, to_fault
from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.framing import encode_content, encode_method_frame
from adapters.amqp.v091.methods.basic import BasicPublish, BasicReturn
from adapters.amqp.v091.methods.codec import decode_method
from adapters.amqp.v091.ports import ChannelPort, ConnectionPort
from adapters.amqp.v091.properties import Properties, decode_properties, encode_properties
from adapters.amqp.v091.replying import Answer, find_requesters, reply, reply_address, reply_all
from features.routing.delayed import delay_ms_of
from features.routing.model import DEFAULT_EXCHANGE, ExchangeType, Message, Value
from gateway.auth.ports import Operation
from gateway.coalescer import Part
from gateway.errors import (
    GatewayError,
    PolicyViolation,
    PublishRefused,
    StorageUnavailable,
    as_value,
)
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.publisher import Publication
from gateway.exchanges.standard import ExchangeNotFound
from gateway.storage import OnDone

PLANS_MAX: Final = 64  # of a connection
PLAN_BYTES_MAX: Final = (
    1_024  # larger ones are made anew each time: decoded, one is 100 times that
)
_CC: Final = ("CC", "BCC")


class PublishedRun:
    """Messages of one channel, received in one read, that differ in their bodies only.

    ``publish`` is the payload of the method, ``properties`` are those of the content header.
    """

    __slots__ = ("bodies", "properties", "publish")

    def __init__(self, publish: bytes, properties: bytes, bodies: list[bytes]) -> None:
        self.publish = publish
        self.properties = properties
        self.bodies = bodies


@dataclass(slots=True)
class Plan:
    """Parts that runs with the same method and properties share.

    ``routed`` is what exchanges look at. ``raw`` are the properties that are stored. ``headers``
    are those of the records; None where they depend on the time. ``replies``: addresses of direct
    reply-to among the routing keys.
    """

    method: BasicPublish
    properties: Properties
    raw: bytes
    routed: Message
    headers: list[tuple[str, bytes | None]] | None
    replies: tuple[str, ...] = ()
    revision: int = -1  # of the rules that have allowed it

    @property
    def key(self) -> bytes | None:
        """The records' key: the routing key, as the client has sent it."""
        return self.method.routing_key.encode() or None

    @property
    def shown_exchange(self) -> str | None:
        """The exchange to be kept with the records; None where the queue's name says it all."""
        exchange = self.method.exchange
        is_plain = exchange == DEFAULT_EXCHANGE and len(self.routed.routing_keys) == 1
        return None if is_plain and not self.replies else exchange

    def answer(self, run: PublishedRun) -> Answer:
        """Return a run as the answer to its ``replies``."""
        return Answer(self.replies, self.method.routing_key, self.raw, run.bodies)


class ConnectionPublisher:
    """Publishes what the channels of one connection receive."""

    def __init__(self, connection: ConnectionPort) -> None:
        self._connection = connection
        self._node = connection.node
        self._plans: dict[tuple[bytes, bytes], Plan] = {}

    def publish(self, channel: ChannelPort, run: PublishedRun) -> None:
        """Publish a run. Errors: ``AmqpFault``, with its method."""
        try:
            self._publish(channel, run)
        except AmqpFault as fault:
            fault.index = BasicPublish.INDEX
            raise

    def _publish(self, channel: ChannelPort, run: PublishedRun) -> None:
        plan = self._plans.get((run.publish, run.properties)) or self._new_plan(channel, run)
        self._check(plan)
        self._node.published += len(run.bodies)
        if channel.publishes is not None:
            self._check_exists(plan)
            channel.publishes(plan, run)
            return
        rest = self._publish_alike(channel, plan, run)
        while rest is not None:
            rest = self._publish_alike(channel, plan, rest)

    def _publish_alike(
        self, channel: ChannelPort, plan: Plan, run: PublishedRun
    ) -> PublishedRun | None:
        """Publish the first messages, to which full queues say the same; return the others."""
        name, publication = self._to_publication(plan, run)
        count = self._node.kernel.publisher.alike_count(name, publication)
        rest = None
        if count < len(run.bodies):
            rest = PublishedRun(run.publish, run.properties, run.bodies[count:])
            run = PublishedRun(run.publish, run.properties, run.bodies[:count])
            name, publication = self._to_publication(plan, run)
        pending = None if channel.confirms is None else channel.confirms.publish(count)
        on_done = self._node.latency.sampled(
            BasicPublish.NAME, partial(self._on_done, channel, pending)
        )
        try:
            topics = self._node.kernel.publisher.publish(name, publication, on_done)
        except AmqpFault:
            raise
        except ExchangeNotFound:
            raise self._not_found(plan) from None
        except (
            PolicyViolation
        ) as error:  # of the exchange, not of a queue: 403 as without confirms
            raise to_fault(as_value(error)) from None
        except GatewayError as error:
            self._refuse(channel, pending, as_value(error))
            return rest
        is_answered = bool(plan.replies) and reply(self._connection, plan.answer(run))
        if not topics and not is_answered:
            self._return(channel, plan, run.bodies)
        return rest

    # --- plans

    def _new_plan(self, channel: ChannelPort, run: PublishedRun) -> Plan:
        method = decode_method(run.publish)
        assert isinstance(method, BasicPublish)
        properties = decode_properties(run.properties)
        shown = without_bcc(properties)
        self._check_properties(method, properties)
        is_request = properties.reply_to == REPLY_TO
        if is_request:
            shown = shown._replace(reply_to=reply_address(channel))
        raw = run.properties if shown is properties else encode_properties(shown)
        keys = (method.routing_key, *_extra_keys(properties.table))
        replies: tuple[str, ...] = ()
        if method.exchange == DEFAULT_EXCHANGE:  # which routes to topics, by their names
            replies = tuple({key: None for key in keys if key.startswith(REPLY_PREFIX)})
            namespace = self._connection.namespace
            keys = tuple(
                to_topic_name(namespace, key).name for key in keys if key not in replies
            )
        routed = Message(keys, to_values(properties.table), _texts(properties))
        plan = Plan(method, shown, raw, routed, None, replies)
        if properties.expiration is None:
            plan.headers = self._headers(plan)
        if is_request:  # a plan of one channel, of which a client mostly sends one
            return plan
        if len(run.publish) + len(run.properties) <= PLAN_BYTES_MAX:
            if len(self._plans) >= PLANS_MAX:
                self._plans.pop(next(iter(self._plans)))
            self._plans[run.publish, run.properties] = plan
        return plan

    def _headers(self, plan: Plan) -> list[tuple[str, bytes | None]]:
        return to_headers(
            plan.properties,
            plan.raw,
            exchange=plan.shown_exchange,
            now_unix_ms=self._node.kernel.clock.unix_ms(),
            reserved=self._node.reserved_prefixes,
        )

    def _check_properties(self, method: BasicPublish, properties: Properties) -> None:
        if properties.expiration is not None:
            parse_expiration(properties.expiration)
        if method.immediate:
            raise AmqpFault(ReplyCode.NOT_IMPLEMENTED, "immediate=true")
        user = self._connection.user_name
        user_id = properties.user_id
        if user_id is not None and user_id != user and not self._connection.is_impersonator:
            raise AmqpFault(
                ReplyCode.PRECONDITION_FAILED,
                f"user_id property set to '{user_id}' but authenticated user was '{user}'",
            )

    def _check(self, plan: Plan) -> None:
        """Check that the user may publish; the answer is kept while the rules stay the same."""
        revision = self._node.kernel.authorizer.revision
        if plan.revision != revision:
            method = plan.method
            keys = plan.routed.routing_keys
            if not plan.replies:  # for which an address is all that one needs
                keys = (method.routing_key, *keys[1:])
            self._connection.access.check_publish(method.exchange, keys)
            self._check_topic(method.exchange, keys)
            plan.revision = revision

    def _check_topic(self, exchange: str, keys: Sequence[str]) -> None:
        name = ExchangeName(self._connection.namespace, exchange)
        found = self._node.kernel.exchanges.find(name)
        if found is not None and found.matching_type is ExchangeType.TOPIC:
            for key in keys:
                self._connection.access.check_topic(Operation.WRITE, exchange, key)

    # --- appending

    def _to_publication(
        self, plan: Plan, run: PublishedRun
    ) -> tuple[ExchangeName, Publication]:
        namespace = self._connection.namespace
        exchange = plan.method.exchange
        headers = plan.headers if plan.headers is not None else self._headers(plan)
        publication = Publication(plan.routed, run.bodies, headers, plan.key)
        return ExchangeName(namespace, exchange), publication

    def _check_exists(self, plan: Plan) -> None:
        exchange = plan.method.exchange
        name = ExchangeName(self._connection.namespace, exchange)
        if exchange != DEFAULT_EXCHANGE and self._node.kernel.exchanges.find(name) is None:
            raise self._not_found(plan)

    def publish_all(
        self,
        channel: ChannelPort,
        runs: Sequence[tuple[Plan, PublishedRun]],
        on_done: OnDone,
        *,
        beside: Sequence[Part] = (),
    ) -> None:
        """Publish what a transaction has gathered, and what is beside, all in one append or none.

        Unroutable messages are returned at once. Errors: those of ``Publisher.publish_all``.
        """
        publications = [self._to_publication(plan, run) for plan, run in runs]
        answers = [plan.answer(run) for plan, run in runs if plan.replies]
        if answers:
            on_done = partial(reply_all, self._connection, answers, on_done)
        publisher = self._node.kernel.publisher
        targets = publisher.publish_all(publications, on_done, beside=beside)
        for topics, (plan, run) in zip(targets, runs, strict=True):
            if not topics and not find_requesters(self._connection, plan.replies):
                self._return(channel, plan, run.bodies)

    def _not_found(self, plan: Plan) -> AmqpFault:
        connection = self._connection
        text = f"no exchange '{plan.method.exchange}' in vhost '{connection.vhost}'"
        return AmqpFault(ReplyCode.NOT_FOUND, text)

    def _return(self, channel: ChannelPort, plan: Plan, bodies: Sequence[bytes]) -> None:
        """Return unroutable messages, if the publisher asks for it; before their confirms."""
        if not plan.method.mandatory or self._is_delayed(plan):
            return
        self._node.returned += len(bodies)
        method = plan.method
        returned = BasicReturn(
            ReplyCode.NO_ROUTE, "NO_ROUTE", method.exchange, method.routing_key
        )
        frame = encode_method_frame(channel.number, returned)
        for body in bodies:
            self._connection.send(frame)
            content = encode_content(
                channel.number, plan.raw, body, self._connection.tuning.frame_bytes_max
            )
            self._connection.send(*content)

    def _is_delayed(self, plan: Plan) -> bool:
        """Say whether messages wait at a delayed exchange: they are routed later, or dropped."""
        name = ExchangeName(self._connection.namespace, plan.method.exchange)
        found = self._node.kernel.exchanges.find(name)
        is_delayed = found is not None and found.type is ExchangeType.DELAYED
        return is_delayed and delay_ms_of(plan.routed.headers) > 0

    def _refuse(
        self, channel: ChannelPort, pending: Pending | None, error: GatewayError
    ) -> None:
        """Refuse messages that a queue does not take: ``basic.nack``, or a closed channel."""
        self._node.disk_alarm.note(error)
        if pending is None:
            raise to_fault(error)
        self._connection.note(type(error).__name__, str(error))
        assert channel.confirms is not None
        channel.confirms.decide(pending, is_nack=True)
        channel.confirm_soon()

    def _on_done(
        self, channel: ChannelPort, pending: Pending | None, error: StorageUnavailable | None
    ) -> None:
        is_refused = isinstance(error, PublishRefused)  # by a full queue
        if error is not None and not is_refused:
            self._node.disk_alarm.note(error)
        if pending is None or channel.confirms is None:
            if error is not None and not is_refused:  # an end is all that says so
                channel.fail_publish(error)
            return
        channel.confirms.decide(pending, is_nack=error is not None)
        channel.confirm_soon()


def _extra_keys(table: Table) -> list[str]:
    """Return the routing keys of CC and BCC. Error: ``AmqpFault`` 406 for other types."""
    keys: list[str] = []
    for name in _CC:
        field = table.find(name)
        if field is None:
            continue
        values = field.value
        if field.kind != "A" or not isinstance(values, tuple):
            raise _invalid_cc(name, field)
        for one in values:
            if not isinstance(one, Field) or not isinstance(one.value, str):
                raise _invalid_cc(name, field)
            keys.append(one.value)
    return keys


def _invalid_cc(name: str, field: Field) -> AmqpFault:
    return AmqpFault(
        ReplyCode.PRECONDITION_FAILED,
        f"invalid message: {{unacceptable_type_in_header,{name},{field.kind}}}",
    )


def to_values(table: Table) -> dict[str, Value]:
    """Return a table as the values that routing compares; of repeated names the first counts."""
    values: dict[str, Value] = {}
    for name, field in table:
        if name not in values:
            values[name] = to_value(field)
    return values


def to_value(field: Field) -> Value:
    """Return a field as a value of routing: by value, not by its type's letter."""
    value = field.value
    if isinstance(value, Table):
        return to_values(value)
    if isinstance(value, tuple):
        return [to_value(one) for one in value if isinstance(one, Field)]
    if isinstance(value, bool | int | float | str | bytes) or value is None:
        return value
    return float(value)


def _texts(properties: Properties) -> dict[str, str]:
    found = {
        "message_id": properties.message_id,
        "correlation_id": properties.correlation_id,
        "timestamp": None if properties.timestamp is None else str(properties.timestamp),
    }
    return {name: text for name, text in found.items() if text is not None}
