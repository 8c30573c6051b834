"""One ReceiveMessage: takes messages or waits for them, and answers with them."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from adapters.sqs.call import Call
from adapters.sqs.errors import INTERNAL_FAILURE, OVER_LIMIT, SqsError, to_sqs_error
from adapters.sqs.mapping import (
    MESSAGE_BYTES_MAX,
    Body,
    Header,
    body_of,
    is_oversize,
    oversize_note,
    read_headers,
)
from adapters.sqs.messages.contiguous_json import (
    SYSTEM_ATTRIBUTES,
    all_are_new,
    attributes_json,
    columns_of,
    receive_body,
)
from adapters.sqs.messages.receive_attempts import Attempt
from adapters.sqs.messages.received import (
    NO_ATTRIBUTES,
    AttributeSelection,
    ReceivedMessage,
    plain_message,
    to_message,
)
from adapters.sqs.text import to_text
from features.queue.model import Result as Settled
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, StorageUnavailable, as_value
from gateway.model import TopicName
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.model import Delivery, DeliveryId, Outcome
from gateway.records.message_ids import message_ids

if TYPE_CHECKING:
    from adapters.sqs.messages.ports import MessageNode
    from gateway.queues.manager import Queue

RECEIVE_BYTES_MAX: Final = 4 * 1_048_576  # of one answer; it has one message at least
# By the Query protocol: 4 MiB of "<" would take 80 ms to escape.
XML_BYTES_MAX: Final = 1_048_576
OVERSIZE_ROUNDS_MAX: Final = 10  # receives in a row that found oversize messages only

_OVERSIZE: Final = "oversize"


class ReceiveRequest:
    """A receive in progress. ``lease_ms`` is None for the queue's visibility timeout."""

    __slots__ = (
        "_attempt_id",
        "_call",
        "_count",
        "_deadline_ms",
        "_is_fifo",
        "_lease_ms",
        "_node",
        "_queue",
        "_revision",
        "_rounds",
        "_selection",
    )

    def __init__(  # noqa: PLR0913 - the parts of a receive; called in one place
        self,
        call: Call,
        node: "MessageNode",
        queue: "Queue",
        *,
        selection: AttributeSelection,
        count: int,
        lease_ms: int | None,
        wait_ms: int,
        is_fifo: bool,
        attempt_id: str | None,
    ) -> None:
        self._call = call
        self._node = node
        self._queue = queue
        self._selection = selection
        self._count = count
        self._lease_ms = lease_ms
        self._is_fifo = is_fifo
        self._attempt_id = attempt_id
        self._deadline_ms = node.clock.monotonic_ms() + wait_ms if wait_ms else 0
        self._rounds = 0
        self._revision = node.kernel.authorizer.revision

    def start(self) -> None:
        """Take messages, or wait for some. Errors: those of ``Queue.receive``."""
        wait_ms = 0
        if self._deadline_ms:
            wait_ms = max(self._deadline_ms - self._node.clock.monotonic_ms(), 0)
        receiver = self._queue.receive_ranges(
            self._count,
            bytes_max=RECEIVE_BYTES_MAX if self._call.is_json else XML_BYTES_MAX,
            on_done=self._on_ranges,
            lease_ms=self._lease_ms,
            wait_ms=wait_ms,
            on_failed=self._on_failed,
        )
        if receiver is not None:
            self._call.on_gone = receiver.cancel

    def _on_ranges(self, ranges: list[DeliveredRange]) -> None:
        if not ranges:
            self._answer_empty()
            return
        if self._revision != self._node.kernel.authorizer.revision and self._is_refused(ranges):
            return
        if self._call.is_json and self._attempt_id is None and self._answer_plain(ranges):
            return  # the common case
        deliveries = self._queue.deliveries_of(ranges)
        received_unix_ms = self._node.clock.steady_unix_ms()
        messages, oversize = self._show(deliveries, received_unix_ms)
        if oversize:
            self._queue.settle(oversize, _ignore, reason=_OVERSIZE)
            if not messages:
                self._again()
                return
        if self._attempt_id is not None:
            gone = {delivery_id for delivery_id, _ in oversize}
            kept = [
                (one.delivery_id, one.first_taken_unix_ms)
                for one in deliveries
                if one.delivery_id not in gone
            ]
            self._node.messages.attempts.remember(
                self._queue.topic.uuid, self._attempt_id, kept, received_unix_ms
            )
        self._call.reply({"Messages": messages})

    def _answer_empty(self) -> None:
        """Answer without messages, or say that too many are in flight.

        A receive that has waited, or one of a FIFO queue, gets an empty answer in any case.
        """
        if self._deadline_ms or self._is_fifo or not self._queue.is_full:
            self._call.reply({})
            return
        text = "Too many messages of the queue are in flight; delete some first."
        self._call.fail(SqsError(OVER_LIMIT, text))

    def _answer_plain(self, ranges: Sequence[DeliveredRange]) -> bool:
        """Answer with plain messages, as the cached batches have them; False for others."""
        with_attributes = self._selection is not NO_ATTRIBUTES
        if with_attributes and (self._is_fifo or not all_are_new(ranges)):
            return False
        columns = columns_of(self._queue, ranges)
        if columns is None or (with_attributes and not all(columns[SYSTEM_ATTRIBUTES])):
            return False
        attributes = None
        if with_attributes:
            taken_unix_ms = ranges[0].first_taken_unix_ms
            attributes = attributes_json(
                columns[SYSTEM_ATTRIBUTES], self._selection.system, taken_unix_ms
            )
        receipts = self._node.messages.receipt_handles_of(self._queue)
        handles = receipts.encode_ranges(ranges, self._node.clock.steady_unix_ms())
        self._call.reply_json(receive_body(columns, handles, attributes))
        return True

    def _is_refused(self, ranges: Sequence[DeliveredRange]) -> bool:
        """Release messages whose receiver is not allowed any more, and refuse the call."""
        try:
            self._node.authorize_again(self._call, self._queue, Operation.READ)
        except SqsError as error:
            deliveries = self._queue.deliveries_of(ranges)
            given_back = [(one.delivery_id, Outcome.RELEASE) for one in deliveries]
            self._queue.settle(given_back, _ignore)
            self._call.fail(as_value(error))
            return True
        return False

    def _on_failed(self) -> None:
        if not self._call.is_answered:
            self._call.fail(SqsError(INTERNAL_FAILURE, "The messages could not be received."))

    def _again(self) -> None:
        """Receive again after a round of oversize messages only, up to a limit of rounds."""
        self._rounds += 1
        if self._rounds >= OVERSIZE_ROUNDS_MAX:
            self._call.reply({})
            return
        try:
            self.start()
        except GatewayError as error:
            self._call.fail(to_sqs_error(error))

    def _show(
        self, deliveries: Sequence[Delivery], received_unix_ms: int
    ) -> tuple[list[dict[str, Any]], list[tuple[DeliveryId, Outcome]]]:
        """Return the messages of an answer, and the outcomes of oversize ones."""
        topic = self._queue.topic
        receipts = self._node.messages.receipt_handles_of(self._queue)
        # A repeated attempt has the same handles, even when some messages have gone meanwhile.
        handles = receipts.encode(
            deliveries, received_unix_ms, contiguous=self._attempt_id is None
        )
        wants_more = self._selection is not NO_ATTRIBUTES
        messages: list[dict[str, Any]] = []
        oversize: list[tuple[DeliveryId, Outcome]] = []
        headers: Sequence[Header] = ()  # of the message before; one sender's are shared
        stored = read_headers(headers)
        ids_number = -1  # the partition of ``id_at``
        for delivery, handle in zip(deliveries, handles, strict=True):
            number, _, _, record = delivery
            offset, _, _, value, found = record
            if found is not headers:
                headers = found
                stored = read_headers(found)
            text = None if value is None or wants_more or stored.others else to_text(value)
            if text is not None and value is not None and len(value) <= MESSAGE_BYTES_MAX:
                if number != ids_number:
                    ids_number, id_at = number, message_ids(topic.uuid, number).at
                own_id = stored.message_id or id_at(offset)
                messages.append(plain_message(own_id, handle, text, value))
                continue  # the common case
            body = body_of(value)
            shown = stored
            if is_oversize(record, body, stored):
                if self._queue.settings.dead_letter_topic:
                    oversize.append((delivery.delivery_id, Outcome.REJECT))
                    continue
                # Dropping it would lose it silently: show its position instead.
                encoding = oversize_note(topic.name.name, number, record)
                shown, body = stored._replace(others=()), Body("", b"", encoding)
            messages.append(
                to_message(
                    ReceivedMessage(delivery, shown, body, handle),
                    topic,
                    self._selection,
                    is_fifo=self._is_fifo,
                    arn_of=self._arn_of,
                )
            )
        return messages, oversize

    def _arn_of(self, name: str) -> str:
        """Return the ARN of another queue in the same namespace."""
        return self._node.arn_of_name(TopicName(self._queue.topic.name.namespace, name))

    # --- a receive that is repeated

    async def repeat(self, attempt: Attempt) -> None:
        """Answer with the messages of the attempt, and restart their visibility timeout.

        If the repetition asks for fewer messages, the first ones come, and the others stay with the
        attempt. If one of the messages has changed, this is an ordinary receive.
        """
        deliveries = await self._again_in_flight(attempt)
        if deliveries:
            shown = deliveries[: self._count]
            messages, _ = self._show(shown, attempt.received_unix_ms)
            self._call.reply({"Messages": messages})
            return
        assert self._attempt_id is not None
        self._node.messages.attempts.forget(self._queue.topic.uuid, self._attempt_id)
        self.start()

    async def _again_in_flight(self, attempt: Attempt) -> list[Delivery]:
        """Return the messages of an attempt, or none when one of them has changed."""
        lease_ms = self._queue.settings.lease_ms if self._lease_ms is None else self._lease_ms
        done: asyncio.Future[list[Settled]] = asyncio.get_running_loop().create_future()

        def on_done(results: list[Settled], error: StorageUnavailable | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(results)
            else:
                done.set_exception(error)

        items = [(delivery_id, lease_ms) for delivery_id, _ in attempt.messages]
        self._queue.extend(items, on_done)
        if any(result is not Settled.DONE for result in await done):
            return []
        deliveries: list[Delivery] = []
        for delivery_id, first_taken_unix_ms in attempt.messages:
            record = await self._queue.get(delivery_id.number, delivery_id.offset)
            if record is None:
                return []
            deliveries.append(
                Delivery(delivery_id.number, delivery_id.attempt, first_taken_unix_ms, record)
            )
        return deliveries


def _ignore(_results: list[Settled], _error: StorageUnavailable | None) -> None:
    """Ignore the result: a message that could not be moved is received and moved again."""
