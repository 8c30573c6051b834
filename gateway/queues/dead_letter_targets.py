"""Destinations of dead letters: a topic, or the topics that an exchange routes to."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from features.dead_letter import HOPS_MAX, Origin, dead_letter_headers, hops_of
from features.dead_letter_history import (
    HISTORY_HEADER,
    REJECTED,
    Death,
    format_history,
    history_of,
    is_cycle,
    with_death,
)
from features.queue.model import Dead, Order
from features.routing.waiting import WaitingMessage
from gateway.errors import StorageUnavailable
from gateway.model import (
    DLQ_HOPS,
    EXCHANGE,
    EXPIRES_AT,
    MESSAGE_ID,
    Headers,
    Record,
    unix_ms_in,
)
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.records.codec import encode_headers
from gateway.records.message_ids import message_id
from gateway.records.record_run import RecordRun
from gateway.slots import partition_for_key
from gateway.topics.manager import Topic
from gateway.transfer.payload import Addressed

DEFAULT_EXCHANGE: Final = "amq.default"
"""Name of the default exchange in ``dead_letter_exchange``, where an empty text is none."""
ID_BYTES_MAX: Final = 128  # of an id that goes along with a message that is too large itself


class DeadLetterRoutes(Protocol):
    """Port of exchanges, as dead letters and due messages use them.

    ``delay_topic``: the topic in whose delays messages of delayed exchanges wait.
    """

    delay_topic: Topic | None

    def dead_letter_topics(
        self, namespace: str, exchange: str, routing_keys: Sequence[str], headers: Headers
    ) -> list[Topic]:
        """Return the topics that a dead letter goes to; none when there is no such exchange.

        ``exchange`` may be ``amq.default``, the default exchange. Errors: ``PolicyViolation`` for
        too many topics.
        """
        ...

    def due_topics(self, waiting: WaitingMessage) -> list[Topic]:
        """Return the topics of a message that waited at a delayed exchange. Errors: as above."""
        ...


def own_id(lane: QueueLane, dead: Dead) -> str:
    """Return the id by which clients know a message that says none itself."""
    partition = lane.partition
    return message_id(partition.topic.uuid, partition.number, dead.offset)


def headers_of(
    lane: QueueLane, dead: Dead, headers: Headers, left_out: str, hops_max: int
) -> list[tuple[str, bytes | None]] | None:
    """Return the headers of a dead letter, or None when it has moved ``hops_max`` times."""
    partition = lane.partition
    return dead_letter_headers(
        headers,
        Origin(
            partition.topic.name.name,
            partition.number,
            dead.offset,
            lane.owner.group,
            dead.attempts,
            dead.reason,
            lane.owner.protocol,
        ),
        message_id=own_id(lane, dead),
        left_out=left_out,
        hops_max=hops_max,
    )


def reference(body: Record) -> Record:
    """Return a reference record for a message that is too large to move.

    It has the key, the time, how often the message was a dead letter, and its id.
    """
    ids = [one for one in body.headers if one[0] == MESSAGE_ID]
    kept = [one for one in ids[:1] if len(one[1] or b"") <= ID_BYTES_MAX]
    kept.append((DLQ_HOPS, str(hops_of(body.headers)).encode()))
    return body._replace(value=None, headers=tuple(kept))


def with_key(lane: QueueLane, dead: Dead, body: Record) -> Record:
    """Return a message as a compacted topic takes it: with a key, and not empty."""
    value = b"" if body.value is None else body.value
    return body._replace(key=own_id(lane, dead).encode(), value=value)


class TopicTarget:
    """One dead-letter topic.

    ``turn`` returns another number at each call. ``is_timed``: the queue of the topic ends messages
    by the time of their arrival, which is then that of the move.
    """

    def __init__(
        self,
        context: QueueContext,
        topic: Topic,
        turn: Callable[[], int],
        *,
        is_timed: bool = False,
    ) -> None:
        self._context = context
        self._topic = topic
        self._turn = turn
        self._is_timed = is_timed

    def addressed(
        self, lane: QueueLane, dead: Dead, body: Record, *, left_out: str = ""
    ) -> list[Addressed]:
        """See ``DeadLetterTarget``; it is dropped when it has moved too often.

        It keeps its time, but for one of a queue in order of its keys: that is sent anew, so its
        retention begins with the move (Amazon SQS, "dead-letter queues and message retention").
        So does that of one without a time, or with one that is still to come.
        """
        topic = self._topic
        if topic.settings.compacts and body.key is None:
            body = with_key(lane, dead, body)
        headers = headers_of(lane, dead, body.headers, left_out, HOPS_MAX)
        if headers is None:
            return []
        now_unix_ms = self._context.clock.unix_ms()
        sent_unix_ms = body.timestamp_unix_ms
        is_sent_anew = self._is_timed or lane.lane.policy.order is Order.KEY
        if is_sent_anew or not 0 <= sent_unix_ms <= now_unix_ms:
            sent_unix_ms = now_unix_ms
        run = RecordRun(body.key, (body.value,), encode_headers(headers), sent_unix_ms)
        found = Addressed(topic, _number(topic, run.key, self._turn), run)
        self._context.transfers.check(found, self._context.messages)
        return [found]


class ExchangeTarget:
    """A dead-letter exchange (AMQP 0-9-1, ``x-dead-letter-exchange``).

    The dead letter's time is that of the move, by which its time to live in the next queue counts.
    """

    def __init__(
        self,
        context: QueueContext,
        routes: DeadLetterRoutes | None,
        turn: Callable[[], int],
    ) -> None:
        self._context = context
        self._routes = routes
        self._turn = turn

    def addressed(
        self, lane: QueueLane, dead: Dead, body: Record, *, left_out: str = ""
    ) -> list[Addressed]:
        """See ``DeadLetterTarget``; dropped where nothing is bound, and at the end of a cycle."""
        history = with_death(history_of(body.headers), self._death(lane, dead, body))
        new_key = lane.owner.settings.dead_letter_routing_key
        if new_key is not None:
            body = body._replace(key=new_key.encode() or None)
        topics = self._topics(lane, body, new_key)
        if dead.reason != REJECTED:
            topics = [topic for topic in topics if not is_cycle(history, topic.name.name)]
        if not topics:
            return []
        if body.key is None and any(topic.settings.compacts for topic in topics):
            body = with_key(lane, dead, body)
        kept = [one for one in body.headers if one[0] != EXCHANGE]
        headers = headers_of(lane, dead, kept, left_out, hops_max=1 << 31)
        assert headers is not None
        headers.append((HISTORY_HEADER, format_history(history)))
        exchange = lane.owner.settings.dead_letter_exchange
        if exchange != DEFAULT_EXCHANGE:
            headers.append((EXCHANGE, exchange.encode()))
        run = RecordRun(
            body.key, (body.value,), encode_headers(headers), self._context.clock.unix_ms()
        )
        turn = self._turn()
        found = [
            Addressed(topic, _number(topic, run.key, lambda: turn), run) for topic in topics
        ]
        for one in found:
            self._context.transfers.check(one, self._context.messages)
        return found

    def _topics(self, lane: QueueLane, body: Record, new_key: str | None) -> list[Topic]:
        if self._routes is None:
            raise StorageUnavailable("exchanges are being loaded")
        name = lane.partition.topic.name
        keys = routing_keys_of(body, name.name) if new_key is None else [new_key]
        exchange = lane.owner.settings.dead_letter_exchange
        return self._routes.dead_letter_topics(name.namespace, exchange, keys, body.headers)

    def _death(self, lane: QueueLane, dead: Dead, body: Record) -> Death:
        now_unix_ms = self._context.clock.unix_ms()
        expires_at = unix_ms_in(_header(body.headers, EXPIRES_AT))
        ttl_ms = -1 if expires_at is None else max(expires_at - body.timestamp_unix_ms, 0)
        return Death(
            lane.partition.topic.name.name,
            dead.reason,
            1,
            now_unix_ms,
            now_unix_ms,
            (_header(body.headers, EXCHANGE) or b"").decode("utf-8", "replace"),
            tuple(routing_keys_of(body, lane.partition.topic.name.name)),
            ttl_ms,
        )


def routing_keys_of(body: Record, queue: str) -> list[str]:
    """Return the routing keys of a message: its key.

    Without a key it is the queue's name, or empty where the message came by an exchange.
    """
    if body.key is None:
        return [queue if _header(body.headers, EXCHANGE) is None else ""]
    return [body.key.decode("utf-8", "replace")]


def _header(headers: Headers, wanted: str) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)


def _number(topic: Topic, key: bytes | None, turn: Callable[[], int]) -> int:
    count = len(topic.partition_ids)
    return turn() % count if key is None else partition_for_key(key, count)


def partition_of(topic: Topic, key: bytes | None) -> int:
    """Return the partition of a message with that key; those without one keep their order."""
    return _number(topic, key, lambda: 0)
