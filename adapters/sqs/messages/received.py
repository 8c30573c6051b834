"""Messages in answers to ReceiveMessage, with the attributes that the receiver asks for."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from adapters.sqs.call import Params, Result
from adapters.sqs.mapping import (
    BODY_ENCODING,
    KEY_ENCODING,
    Body,
    StoredHeaders,
    attributes_of,
    dead_letter_attributes_of,
    group_of,
)
from adapters.sqs.message_attributes import Attributes, MessageAttribute, to_result
from adapters.sqs.messages.md5 import md5_of_attributes, md5_of_body
from gateway.auth.ports import ANONYMOUS
from gateway.queues.model import Delivery
from gateway.records.message_ids import message_id
from gateway.topics.manager import Topic

ALL: Final = "All"
_ALL_BY_PREFIX: Final = ".*"
_ALL_NAMES: Final = frozenset({ALL, _ALL_BY_PREFIX, "*"})


class AttributeSelection(NamedTuple):
    """The attributes that a receiver asks for. ``system`` is None for all system attributes."""

    system: frozenset[str] | None
    all_attributes: bool
    names: frozenset[str]
    prefixes: tuple[str, ...]

    @property
    def any_attributes(self) -> bool:
        """Whether any message attributes are asked for."""
        return self.all_attributes or bool(self.names) or bool(self.prefixes)

    def includes(self, name: str) -> bool:
        """Return whether a message attribute is asked for by name or by prefix."""
        return name in self.names or name.startswith(self.prefixes)


NO_ATTRIBUTES: Final = AttributeSelection(frozenset(), False, frozenset(), ())  # noqa: FBT003 - a tuple's field


def parse_selection(params: Params) -> AttributeSelection:
    """Return the attributes that a ReceiveMessage asks for; unknown names are ignored.

    ``bar.*`` stands for all names that begin with ``bar``. ``AttributeNames`` is the older name
    of ``MessageSystemAttributeNames``.
    """
    system: Sequence[str] = params.get("MessageSystemAttributeNames") or ()
    older: Sequence[str] = params.get("AttributeNames") or ()
    names: Sequence[str] = params.get("MessageAttributeNames") or ()
    if not system and not older and not names:
        return NO_ATTRIBUTES
    wants_all = ALL in system or ALL in older
    return AttributeSelection(
        None if wants_all else frozenset(system) | frozenset(older),
        not _ALL_NAMES.isdisjoint(names),
        frozenset(names),
        tuple(name[:-2] for name in names if name.endswith(_ALL_BY_PREFIX) and name[:-2]),
    )


class ReceivedMessage(NamedTuple):
    """A message for a receiver: the delivery, its parsed headers, body and receipt handle."""

    delivery: Delivery
    stored: StoredHeaders
    body: Body
    handle: str


def plain_message(own_id: str, handle: str, text: str, data: bytes) -> Result:
    """Return a message without attributes; ``data`` is the UTF-8 of ``text``."""
    return {
        "MessageId": own_id,
        "MD5OfBody": md5_of_body(data),
        "Body": text,
        "ReceiptHandle": handle,
    }


def to_message(
    shown: ReceivedMessage,
    topic: Topic,
    selection: AttributeSelection,
    *,
    is_fifo: bool,
    arn_of: Callable[[str], str],
) -> Result:
    """Return a message of an answer. ``arn_of`` returns the ARN of another queue by name."""
    delivery, stored, body, handle = shown
    record = delivery.record
    own_id = stored.message_id or message_id(topic.uuid, delivery.number, record.offset)
    message = plain_message(own_id, handle, body.text, body.data)
    if selection is NO_ATTRIBUTES and body.encoding is None:
        return message
    group, key_encoding = group_of(record.key)
    if selection.system is None or selection.system:
        system = _system_attributes(delivery, stored, group, is_fifo=is_fifo)
        if stored.source_topic is not None:
            system["DeadLetterQueueSourceArn"] = arn_of(stored.source_topic)
        if selection.system is not None:
            system = {name: system[name] for name in system if name in selection.system}
        if system:
            message["Attributes"] = system
    attributes = _selected_attributes(stored, body, key_encoding, selection)
    if attributes:
        message["MessageAttributes"] = to_result(attributes)
        message["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
    return message


def sequence_number(offset: int) -> str:
    """Return the SequenceNumber of an offset: 20 digits, growing within a message group."""
    return f"{offset:020d}"


def _system_attributes(
    delivery: Delivery, stored: StoredHeaders, group: str | None, *, is_fifo: bool
) -> dict[str, str]:
    record = delivery.record
    system = {
        "SenderId": stored.sender or ANONYMOUS,
        "SentTimestamp": str(record.timestamp_unix_ms),
        "ApproximateReceiveCount": str(delivery.attempt + stored.earlier_attempts),
        "ApproximateFirstReceiveTimestamp": str(delivery.first_taken_unix_ms),
    }
    if is_fifo:
        system["SequenceNumber"] = sequence_number(record.offset)
    if stored.dedup_id is not None:
        system["MessageDeduplicationId"] = stored.dedup_id
    if group is not None:
        system["MessageGroupId"] = group
    if stored.trace is not None:
        system["AWSTraceHeader"] = stored.trace
    return system


def _selected_attributes(
    stored: StoredHeaders, body: Body, key_encoding: bytes | None, selection: AttributeSelection
) -> Attributes:
    """Return the message attributes to show; those that name an encoding come unasked.

    The headers ``dlq.*`` are shown only when named, not with ``All``: a dead letter has the
    attributes that were sent, as in Amazon SQS.
    """
    attributes: Attributes = {}
    if stored.others and selection.any_attributes:
        attributes = attributes_of(stored)
        if not selection.all_attributes:
            attributes = {
                name: attributes[name] for name in attributes if selection.includes(name)
            }
    if stored.dead_letter and (selection.names or selection.prefixes):
        for name, attribute in dead_letter_attributes_of(stored).items():
            if selection.includes(name):
                attributes[name] = attribute
    if body.encoding is not None:
        attributes[BODY_ENCODING] = MessageAttribute("String", body.encoding)
    if key_encoding is not None:
        attributes[KEY_ENCODING] = MessageAttribute("String", key_encoding)
    return attributes
