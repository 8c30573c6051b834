"""SUBSCRIBE: what is asked for, and the subscription that is made of it."""

from typing import Final

from gateway.auth.ports import Operation
from gateway.errors import InvalidRequest, PolicyViolation
from gateway.futures import await_done
from gateway.model import check_topic_name
from gateway.queues.manager import Queue
from headgate_stomp.access import Access
from headgate_stomp.destinations import Destination, Kind
from headgate_stomp.errors import StompFault
from headgate_stomp.frames import Version
from headgate_stomp.messages import MessageEncoder
from headgate_stomp.ports import AckMode, Asked, Connection, Subscription
from headgate_stomp.queue_subscription import QueueSubscription
from headgate_stomp.topic_subscription import TopicSubscription

QUEUE_NAME: Final = "x-queue-name"
_PREFETCH_DIGITS_MAX: Final = 9
_ID_BYTES_MAX: Final = 255


def subscription_id(headers: dict[str, str]) -> str:
    """Return the id of a subscription; in 1.0 its destination may stand for it.

    Error: ``StompFault``.
    """
    found = headers.get("id") or headers.get("destination")
    if not found or len(found.encode()) > _ID_BYTES_MAX:
        raise StompFault("Missing id", f"a header id of 1 to {_ID_BYTES_MAX} bytes is needed")
    return found


def is_durable(headers: dict[str, str]) -> bool:
    """Say whether a subscription goes on behind what it has acknowledged."""
    return headers.get("durable") == "true"


def _mode_of(headers: dict[str, str]) -> AckMode:
    text = headers.get("ack", AckMode.AUTO.value)
    try:
        return AckMode(text)
    except ValueError:
        msg = f"ack {text[:40]!r} is not auto, client or client-individual"
        raise InvalidRequest(msg) from None


def _credit_of(headers: dict[str, str], unacked_max: int) -> int:
    """Return how many messages may be in flight; 0 and none are the most."""
    text = headers.get("prefetch-count", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _PREFETCH_DIGITS_MAX):
        msg = f"prefetch-count {text[:40]!r} is no number"
        raise InvalidRequest(msg)
    return min(int(text) or unacked_max, unacked_max)


class Subscriber:
    """Makes the subscriptions of one connection."""

    def __init__(
        self, connection: Connection, access: Access, *, session: str, version: Version
    ) -> None:
        self._connection = connection
        self._node = connection.node
        self._access = access
        self._session = session
        self._version = version
        self._number = 0

    async def subscribe(
        self, headers: dict[str, str], destination: Destination
    ) -> tuple[int, Subscription]:
        """Return a subscription and its number; it is kept before this returns.

        Errors: ``GatewayError``.
        """
        self._access.check(Operation.READ, destination)
        kind = destination.kind
        if kind is Kind.TOPIC:
            return await self._topic(headers, destination)
        if kind in {Kind.TEMPORARY_QUEUE, Kind.REPLY_QUEUE}:
            raise StompFault("Unknown destination", "temporary queues come with reply-to")
        is_temporary = kind is Kind.EXCHANGE and QUEUE_NAME not in headers
        if kind is Kind.EXCHANGE:
            queue = await self._bound_queue(headers, destination)
            shown = f"{kind.value}{destination.name}/"
        else:
            queue = await self._queue(destination)
            shown = f"{kind.value}{destination.name}"
        asked = self._asked(headers, shown, queue)
        try:
            return asked.number, self._to_queue(queue, asked, is_temporary=is_temporary)
        except BaseException:
            if is_temporary:
                self._node.delete_soon(queue)
            raise

    def to_reply_queue(self, name: str, queue: Queue) -> tuple[int, Subscription]:
        """Return the subscription to a temporary queue. Errors: as ``Consumers.subscribe``."""
        own_id = f"{Kind.TEMPORARY_QUEUE.value}{name}"
        asked = self._asked({"id": own_id}, own_id, queue)
        return asked.number, self._to_queue(queue, asked, is_temporary=True)

    def _to_queue(self, queue: Queue, asked: Asked, *, is_temporary: bool) -> Subscription:
        queue.check_here()
        return QueueSubscription(self._connection, queue, asked, is_temporary=is_temporary)

    async def _queue(self, destination: Destination) -> Queue:
        if destination.kind is Kind.EXISTING_QUEUE:
            return self._node.get_queue(destination.topic_name)
        found = self._node.find_queue(destination.topic_name)
        if found is None:
            self._access.check(Operation.CREATE, destination)
            found = await self._node.make_queue(destination.topic_name, {})
        return found

    async def _bound_queue(self, headers: dict[str, str], source: Destination) -> Queue:
        """Return a queue to which an exchange routes: one of its own, or a named one."""
        name = headers.get(QUEUE_NAME)
        if name is None:
            queue = await self._node.make_temporary_queue()
        else:
            queue = await self._queue(Destination(Kind.QUEUE, check_topic_name(name)))
        try:
            await self._node.bind(source, queue)
        except BaseException:
            if name is None:
                self._node.delete_soon(queue)
            raise
        return queue

    async def _topic(
        self, headers: dict[str, str], destination: Destination
    ) -> tuple[int, Subscription]:
        node = self._node
        topic = await node.topic(destination.topic_name)
        if topic.is_internal:
            msg = f"topic {destination.name} is internal"
            raise PolicyViolation(msg)
        numbers = range(len(topic.partition_ids))
        partitions = [node.kernel.broker.partition(topic, number) for number in numbers]
        name = subscription_id(headers) if is_durable(headers) else ""
        live = topic.uuid, name
        if name and live in node.live_subscribers:
            raise StompFault("Subscription in use", f"{name} is subscribed by a connection")
        asked = self._asked(headers, f"{Kind.TOPIC.value}{destination.name}", None)
        made = TopicSubscription(self._connection, partitions, asked, subscriber=name)
        try:
            await await_done(made.store)
        except BaseException:
            made.close()
            raise
        made.start()
        return asked.number, made

    def _asked(self, headers: dict[str, str], destination: str, queue: Queue | None) -> Asked:
        self._number += 1
        mode = _mode_of(headers)
        own_id = subscription_id(headers)
        encoder = MessageEncoder(
            self._version,
            session=self._session,
            number=self._number,
            subscription=own_id,
            destination=destination,
            own_key=queue.name.name.encode() if queue is not None else _last(destination),
            is_acked=mode is not AckMode.AUTO,
            hidden=self._node.reserved,
        )
        credit = _credit_of(headers, self._node.config.unacked_max)
        return Asked(own_id, self._number, mode, credit, encoder)


def _last(destination: str) -> bytes:
    return destination.rpartition("/")[2].encode()


def reply_name(queue: Queue) -> str:
    """Return the destination by which a temporary queue gets answers."""
    return f"{Kind.REPLY_QUEUE.value}{queue.name.name}"


def temporary_name(reply_to: str) -> str | None:
    """Return NAME of ``/temp-queue/NAME`` in a header reply-to; None for any other."""
    prefix = Kind.TEMPORARY_QUEUE.value
    return reply_to.removeprefix(prefix) if reply_to.startswith(prefix) else None
