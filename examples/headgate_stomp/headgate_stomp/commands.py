"""Commands of one connection, one method each."""

from collections.abc import Callable, Coroutine
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from gateway.auth.ports import Operation
from gateway.errors import GatewayError, InvalidRequest, Overloaded, PolicyViolation
from gateway.queues.model import Outcome
from headgate_stomp.access import Access, log_in
from headgate_stomp.connection import StompConnection
from headgate_stomp.destinations import Destination, Kind, parse_destination
from headgate_stomp.errors import StompFault
from headgate_stomp.frames import Frame, encode_frame
from headgate_stomp.messages import parse_ack_id
from headgate_stomp.publishing import Plans, Run, Shared, shared_headers
from headgate_stomp.session import (
    State,
    agree_heart_beats,
    agree_version,
    check_command,
)
from headgate_stomp.settling import Settlements
from headgate_stomp.subscribing import (
    Subscriber,
    is_durable,
    reply_name,
    subscription_id,
    temporary_name,
)
from headgate_stomp.topic_subscription import TopicSubscription
from headgate_stomp.transactions import Settlement, Transactions

Work = Coroutine[Any, Any, None]
_DESTINATIONS_MAX: Final = 1_000  # parsed ones that are kept
_REPLY_TO: Final = "reply-to"
SERVER: Final = f"headgate-stomp/{version('headgate-stomp')}"


class Commands:
    """Handlers of frames. A SEND or an ACK is kept until another kind comes, or ``flush``."""

    def __init__(self, connection: StompConnection) -> None:
        node = connection.node
        config = node.config
        self._connection = connection
        self._node = node
        self._kernel = node.kernel
        self._access = Access(node.kernel, connection.principal)
        self._subscriber: Subscriber
        self._plans = Plans(node.kernel, node.reserved)
        self._transactions = Transactions(
            count_max=config.transactions_max, bytes_max=config.transaction_bytes_max
        )
        self._run: Run | None = None
        self._settlements = Settlements(connection)
        self._destinations: dict[str, Destination] = {}
        self._reply_queues: dict[str, str] = {}  # by NAME of /temp-queue/NAME
        self._handlers: dict[str, Callable[[Frame], Work | None]] = {
            "CONNECT": self._connect,
            "STOMP": self._connect,
            "SEND": self._send,
            "SUBSCRIBE": self._subscribe,
            "UNSUBSCRIBE": self._unsubscribe,
            "ACK": partial(self._settle, outcome=Outcome.ACK),
            "NACK": self._nack,
            "BEGIN": self._begin,
            "COMMIT": self._commit,
            "ABORT": self._abort,
            "DISCONNECT": self._disconnect,
        }

    def handle(self, frame: Frame) -> Work | None:
        """Serve a frame; return the rest of the work where it has to wait.

        Errors: ``GatewayError``.
        """
        check_command(self._connection.state, frame.command)
        if frame.command != "SEND":
            self._publish()
        return self._handlers[frame.command](frame)

    def flush(self) -> None:
        """Publish and settle what was received. Errors: ``GatewayError``."""
        self._publish()
        self._settlements.flush()

    def close(self) -> None:
        """End all transactions and subscriptions."""
        self._transactions.close()
        subscriptions = self._connection.subscriptions
        for subscription in tuple(subscriptions.values()):
            subscription.close()
        subscriptions.clear()

    def _receipt(self, frame: Frame) -> None:
        if (receipt := frame.headers.get("receipt")) is not None:
            self._connection.send_frame("RECEIPT", [("receipt-id", receipt)])

    # --- CONNECT and DISCONNECT

    async def _connect(self, frame: Frame) -> None:
        connection, headers = self._connection, frame.headers
        agreed = agree_version(headers)
        ms_min = self._node.config.heart_beat_ms_min
        beats = agree_heart_beats(headers.get("heart-beat"), ms_min=ms_min)
        connection.principal = await log_in(
            headers,
            self._kernel,
            self._node.config,
            connection.transport,
            connection.peer_host,
        )
        connection.has_greeted = True
        connection.keep_before_login(0)
        connection.reader.version = agreed
        connection.heart_beats = beats
        connection.state = State.CONNECTED
        self._access = Access(self._kernel, connection.principal)
        self._subscriber = Subscriber(
            connection, self._access, session=connection.session, version=agreed
        )
        connected = [
            ("version", str(agreed)),
            ("heart-beat", f"{ms_min},{ms_min}"),
            ("session", connection.session),
            ("server", SERVER),
        ]
        connection.send_frame("CONNECTED", connected)

    def _disconnect(self, frame: Frame) -> None:
        self.flush()
        receipt = frame.headers.get("receipt")
        last_frame = b""
        if receipt is not None:
            own = self._connection.reader.version
            last_frame = encode_frame("RECEIPT", [("receipt-id", receipt)], own)
        self._connection.leave_with(last_frame)

    # --- SEND

    def _send(self, frame: Frame) -> Work | None:
        destination = self._destination(frame.headers.get("destination"))
        self._access.check(Operation.WRITE, destination)
        if not self._is_there(destination) or self._needs_reply_queue(frame):
            self._publish()  # in order
            return self._send_later(frame, destination)
        self._send_now(frame, destination)
        return None

    def _destination(self, text: str | None) -> Destination:
        found = self._destinations.get(text or "")
        if found is None:
            found = parse_destination(text)
            if found.kind is Kind.TEMPORARY_QUEUE:
                raise StompFault("Unknown destination", "temporary queues are for reply-to")
            if len(self._destinations) >= _DESTINATIONS_MAX:
                self._destinations.clear()
            self._destinations[text or ""] = found
        return found

    def _is_there(self, destination: Destination) -> bool:
        """Say whether the destination exists. Errors: ``TopicNotFound``, ``PolicyViolation``."""
        kind, name = destination.kind, destination.topic_name
        if kind is Kind.EXCHANGE:
            return True  # or the publisher says that it is not
        if kind is Kind.TOPIC:
            topic = self._kernel.topics.find(name)
            if topic is not None and topic.is_internal:
                msg = f"topic {name.name} is internal"
                raise PolicyViolation(msg)
            return topic is not None
        if kind is Kind.QUEUE:
            return self._node.find_queue(name) is not None
        self._node.get_queue(name)
        return True

    def _needs_reply_queue(self, frame: Frame) -> bool:
        name = temporary_name(frame.headers.get(_REPLY_TO, ""))
        return name is not None and name not in self._reply_queues

    async def _send_later(self, frame: Frame, destination: Destination) -> None:
        """Make what a message goes to, and send it."""
        if not self._is_there(destination):
            if destination.kind is Kind.TOPIC:
                await self._node.topic(destination.topic_name)
            else:
                self._access.check(Operation.CREATE, destination)
                await self._node.make_queue(destination.topic_name, {})
        if self._needs_reply_queue(frame):
            await self._make_reply_queue(temporary_name(frame.headers[_REPLY_TO]) or "")
        self._send_now(frame, destination)
        self._publish()

    async def _make_reply_queue(self, name: str) -> None:
        self._check_room()
        queue = await self._node.make_temporary_queue()
        number, subscription = self._subscriber.to_reply_queue(name, queue)
        self._connection.subscriptions[number] = subscription
        self._reply_queues[name] = reply_name(queue)

    def _send_now(self, frame: Frame, destination: Destination) -> None:
        name = temporary_name(frame.headers.get(_REPLY_TO, ""))
        if name is not None:
            frame.headers[_REPLY_TO] = self._reply_queues[name]
        shared = shared_headers(frame)
        run = self._run
        transaction = frame.headers.get("transaction")
        if transaction is not None:
            self._send_in(transaction, shared, frame, destination)
        elif run is not None and run.shared == shared:
            run.add(frame)
        else:
            self._publish()
            self._run = run = Run(shared, self._plans.get(shared, destination))
            run.add(frame)

    def _send_in(
        self, name: str, shared: Shared, frame: Frame, destination: Destination
    ) -> None:
        transaction = self._transactions.get(name)
        plan = self._plans.get(shared, destination)
        self._transactions.count(transaction.send(shared, plan, frame))
        self._receipt(frame)

    def _publish(self) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        connection = self._connection
        run.publish(
            self._kernel, partial(connection.guard, connection.on_durable, run.receipts)
        )
        connection.wait_durable()

    # --- SUBSCRIBE and UNSUBSCRIBE

    async def _subscribe(self, frame: Frame) -> None:
        headers = frame.headers
        destination = parse_destination(headers.get("destination"))
        own_id = subscription_id(headers)
        if self._find(own_id) is not None:
            raise StompFault("Duplicated subscription identifier", f"id {own_id} is in use")
        self._check_room()
        number, subscription = await self._subscriber.subscribe(headers, destination)
        if self._connection.is_closing:
            subscription.close()
            return
        self._connection.subscriptions[number] = subscription
        self._receipt(frame)

    def _check_room(self) -> None:
        count_max = self._node.config.subscriptions_max
        if len(self._connection.subscriptions) >= count_max:
            msg = f"subscriptions_max is {count_max}"
            raise Overloaded(msg)

    def _find(self, own_id: str) -> int | None:
        found = self._connection.subscriptions.items()
        return next((number for number, one in found if one.id == own_id), None)

    def _unsubscribe(self, frame: Frame) -> Work | None:
        own_id = subscription_id(frame.headers)
        number = self._find(own_id)
        if number is None:
            raise StompFault("Subscription not found", f"there is no subscription {own_id}")
        self._settlements.flush()
        subscription = self._connection.subscriptions.pop(number)
        subscription.close()
        if is_durable(frame.headers) and isinstance(subscription, TopicSubscription):
            return self._forget(subscription, frame)
        self._receipt(frame)
        return None

    async def _forget(self, subscription: TopicSubscription, frame: Frame) -> None:
        await subscription.forget()
        self._receipt(frame)

    # --- ACK and NACK

    def _nack(self, frame: Frame) -> None:
        is_requeued = frame.headers.get("requeue", "true") != "false"
        self._settle(frame, Outcome.RELEASE if is_requeued else Outcome.REJECT)

    def _settle(self, frame: Frame, outcome: Outcome) -> None:
        headers = frame.headers
        text = headers.get("id") or headers.get("message-id") or ""
        settlement = self._take(text, outcome)
        transaction = headers.get("transaction")
        if transaction is not None:
            try:
                open_one = self._transactions.get(transaction)
                self._transactions.count(open_one.settle(settlement))
            except GatewayError:
                settlement.subscription.put_back(settlement.unacked)
                raise
            self._receipt(frame)
        else:
            self._settlements.add(settlement, headers.get("receipt"))

    def _take(self, text: str, outcome: Outcome) -> Settlement:
        """Take messages from those in flight. Errors: ``StompFault``, ``InvalidRequest``."""
        try:
            number, tag = parse_ack_id(text)
        except ValueError:
            msg = f"{text[:80]!r} is the id of no message"
            raise InvalidRequest(msg) from None
        subscription = self._connection.subscriptions.get(number)
        unacked = None if subscription is None else subscription.take(tag)
        if subscription is None or unacked is None:
            raise StompFault("Message not in flight", f"{text} is not to be acknowledged")
        return Settlement(subscription, unacked, outcome)

    # --- transactions

    def _begin(self, frame: Frame) -> None:
        self._transactions.begin(_transaction_of(frame))
        self._receipt(frame)

    def _commit(self, frame: Frame) -> None:
        """Append all messages as one, or none; then settle. RECEIPT comes when both are kept."""
        self._settlements.flush()
        transaction = self._transactions.take(_transaction_of(frame))
        receipts = [one] if (one := frame.headers.get("receipt")) is not None else []
        connection = self._connection
        publications = transaction.publications()
        if not publications:
            self._settlements.settle(transaction.settlements, receipts)
            return
        on_done = partial(self._settlements.settle_after, transaction, receipts)
        try:
            self._kernel.publisher.publish_all(publications, partial(connection.guard, on_done))
        except GatewayError:
            transaction.roll_back()
            raise
        connection.wait_durable()

    def _abort(self, frame: Frame) -> None:
        self._transactions.take(_transaction_of(frame)).roll_back()
        self._receipt(frame)


def _transaction_of(frame: Frame) -> str:
    name = frame.headers.get("transaction")
    if not name:
        raise StompFault("Missing transaction", "the header transaction is missing")
    return name
