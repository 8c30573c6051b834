"""Messages to send: checks of their parameters with AWS's error texts, and their headers."""

import re
from hashlib import sha256
from typing import Any, Final
from uuid import uuid4

from adapters.sqs.call import Params, Result
from adapters.sqs.errors import (
    INVALID_MESSAGE_CONTENTS,
    SqsError,
    invalid_parameter,
    missing_parameter,
)
from adapters.sqs.mapping import (
    MS_PER_S,
    fifo_header_block,
    headers_of,
    plain_header_block,
)
from adapters.sqs.message_attributes import (
    INVALID_CHARACTERS,
    TRACE_HEADER,
    Attributes,
    MessageAttribute,
    parse_attributes,
    parse_trace_header,
    size_bytes,
)
from adapters.sqs.messages.md5 import md5_of_attributes, md5_of_body
from adapters.sqs.queues.queue_rules import QueueRules
from adapters.sqs.text import quote, to_bytes, to_text
from gateway.records.codec import encode_headers

DELAY_S_MAX: Final = 900
ID_CHARS_MAX: Final = 128

_ID: Final = re.compile(r"[!-~]{1,128}")  # alphanumeric characters and punctuation
_PLAIN_MEMBERS: Final = frozenset({"QueueUrl", "Id", "MessageBody"})
_NO_DEDUP_ID: Final = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)
_NO_ATTRIBUTES: Final[Attributes] = {}


class OutgoingMessage:
    """A message on its way into the log.

    ``deliver_at_unix_ms`` is set for a message that waits in the delay block. ``message_id`` and
    ``sequence_number`` are set when the log has the message.
    """

    __slots__ = (
        "attributes",
        "body",
        "dedup_id",
        "deliver_at_unix_ms",
        "has_own_trace",
        "headers",
        "key",
        "message_id",
        "sequence_number",
        "trace",
    )

    def __init__(self, body: bytes, key: bytes | None) -> None:
        self.body = body
        self.key = key
        self.attributes = _NO_ATTRIBUTES
        self.trace: bytes | None = None
        self.has_own_trace = False  # from the message, not from a header of its request
        self.dedup_id: str | None = None
        self.headers = b""
        self.deliver_at_unix_ms: int | None = None
        self.message_id = ""
        self.sequence_number: str | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of body and attributes, which count towards the size of a message."""
        return len(self.body) + (size_bytes(self.attributes) if self.attributes else 0)


def prepare(
    entry: Params,
    rules: QueueRules,
    *,
    sender: str,
    now_unix_ms: int,
    trace: bytes | None = None,
) -> OutgoingMessage:
    """Return the message of a SendMessage, or of an entry of its batch. Error: ``SqsError``.

    ``trace`` is the request's X-Ray trace header, for a message without one of its own.
    """
    body = _body(entry["MessageBody"])
    if (
        entry.keys() <= _PLAIN_MEMBERS
        and not rules.is_fifo
        and trace is None
        and len(body) <= rules.message_bytes_max
    ):
        outgoing = OutgoingMessage(body, None)  # the common case
        outgoing.headers = plain_header_block(sender)
        return outgoing
    group_id: str | None = entry.get("MessageGroupId")
    if group_id is not None:
        check_id("MessageGroupId", group_id)
    outgoing = OutgoingMessage(body, None if group_id is None else group_id.encode())
    attributes = entry.get("MessageAttributes")
    if attributes:
        outgoing.attributes = parse_attributes(attributes)
    system_attributes = entry.get("MessageSystemAttributes")
    if system_attributes:
        outgoing.trace = parse_trace_header(system_attributes)
        outgoing.has_own_trace = outgoing.trace is not None
    if outgoing.trace is None and trace and to_text(trace) is not None:
        outgoing.trace = trace
    if outgoing.size_bytes > rules.message_bytes_max:
        raise invalid_parameter(
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{rules.message_bytes_max} bytes."
        )
    outgoing.dedup_id = _dedup_id(entry, rules, body)
    _set_headers(outgoing, _delay_s(entry, rules), sender, now_unix_ms, rules)
    return outgoing


def check_batch_fifo(entry: Params, rules: QueueRules) -> None:
    """Check the members of an entry whose errors fail the whole batch. Error: ``SqsError``."""
    if not rules.is_fifo:
        return
    if not entry.get("MessageDeduplicationId") and not rules.content_based_deduplication:
        raise invalid_parameter(_NO_DEDUP_ID)
    if not entry.get("MessageGroupId"):
        raise missing_parameter("MessageGroupId")


def check_id(parameter: str, value: str) -> None:
    """Check a MessageGroupId, MessageDeduplicationId or ReceiveRequestAttemptId."""
    if not _ID.fullmatch(value):
        raise invalid_parameter(
            f"Value {quote(value)} for parameter {parameter} is invalid. Reason: "
            f"{parameter} can only include alphanumeric and punctuation characters. 1 to "
            f"{ID_CHARS_MAX} in length."
        )


def send_result(outgoing: OutgoingMessage) -> Result:
    """Return the answer for a message that was sent."""
    result: dict[str, Any] = {
        "MessageId": outgoing.message_id,
        "MD5OfMessageBody": md5_of_body(outgoing.body),
    }
    if outgoing.attributes:
        result["MD5OfMessageAttributes"] = md5_of_attributes(outgoing.attributes)
    if outgoing.has_own_trace and outgoing.trace is not None:
        system = {TRACE_HEADER: MessageAttribute("String", outgoing.trace)}
        result["MD5OfMessageSystemAttributes"] = md5_of_attributes(system)
    if outgoing.sequence_number is not None:
        result["SequenceNumber"] = outgoing.sequence_number
    return result


def _body(text: str) -> bytes:
    if not text:
        raise missing_parameter("MessageBody")
    body = to_bytes(text)
    if body is None:
        raise SqsError(INVALID_MESSAGE_CONTENTS, INVALID_CHARACTERS)
    return body


def _dedup_id(entry: Params, rules: QueueRules, body: bytes) -> str | None:
    """Return the deduplication id of a message to a FIFO queue, None for a standard one."""
    dedup_id: str | None = entry.get("MessageDeduplicationId")
    if not rules.is_fifo:
        if dedup_id is not None:
            raise invalid_parameter(
                f"Value {quote(dedup_id)} for parameter MessageDeduplicationId is "
                "invalid. Reason: The request includes a parameter that is not valid for this "
                "queue type."
            )
        return None
    if entry.get("MessageGroupId") is None:
        raise missing_parameter("MessageGroupId")
    if dedup_id is not None:
        check_id("MessageDeduplicationId", dedup_id)
        return dedup_id
    if not rules.content_based_deduplication:
        raise invalid_parameter(_NO_DEDUP_ID)
    return sha256(body).hexdigest()


def _delay_s(entry: Params, rules: QueueRules) -> int | None:
    """Return the message's own delay in seconds; None when it is the queue's."""
    delay_s: int | None = entry.get("DelaySeconds")
    if delay_s is None:
        return None
    if rules.is_fifo:
        if delay_s:
            raise invalid_parameter(
                f"Value {delay_s} for parameter DelaySeconds is invalid. Reason: The request "
                "include parameter that is not valid for this queue type."
            )
        return None
    if not 0 <= delay_s <= DELAY_S_MAX:
        raise invalid_parameter(
            f"Value {delay_s} for parameter DelaySeconds is invalid. Reason: DelaySeconds must "
            f"be >= 0 and <= {DELAY_S_MAX}."
        )
    return None if delay_s * MS_PER_S == rules.delay_ms else delay_s


def _set_headers(
    outgoing: OutgoingMessage,
    delay_s: int | None,
    sender: str,
    now_unix_ms: int,
    rules: QueueRules,
) -> None:
    """Set the headers, and the delivery time of a message with its own delay.

    A waiting message has no offset to make its id from: it gets a random id, which it keeps.
    """
    visible_unix_ms = None
    if delay_s:
        outgoing.deliver_at_unix_ms = now_unix_ms + delay_s * MS_PER_S
        outgoing.message_id = str(uuid4())
    elif delay_s is not None:
        visible_unix_ms = now_unix_ms  # at once, in spite of the queue's delay
    elif not outgoing.attributes and outgoing.trace is None:
        dedup_id = outgoing.dedup_id
        outgoing.headers = (
            plain_header_block(sender)
            if dedup_id is None
            else fifo_header_block(sender, dedup_id)
        )
        return
    headers = headers_of(
        outgoing.attributes,
        sender=sender,
        trace=outgoing.trace,
        dedup_id=outgoing.dedup_id,
        deliver_at_unix_ms=visible_unix_ms,
        message_id=outgoing.message_id or None,
        reserved_prefixes=rules.reserved_prefixes,
    )
    outgoing.headers = encode_headers(headers)
