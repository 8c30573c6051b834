"""JSON answers for contiguous plain messages, the most common receives and deletes.

The answers equal those of ``received.plain_message`` and ``batch_entries.batch_result``, but are
written without a dict for each message. All parts of a message but its receipt handle are made
once, for all receives.
"""

from base64 import b64encode
from collections.abc import Sequence
from operator import add
from typing import TYPE_CHECKING, Final

import orjson

from adapters.sqs.mapping import (
    BASE64,
    BODY_ENCODING,
    MESSAGE_BYTES_MAX,
    Header,
    StoredHeaders,
    body_of,
    is_oversize,
    read_headers,
)
from adapters.sqs.message_attributes import MessageAttribute, to_result
from adapters.sqs.messages.md5 import md5_of_attributes, md5s_of_bodies
from adapters.sqs.text import to_text
from gateway.auth.ports import ANONYMOUS
from gateway.model import Record
from gateway.partition import Partition
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.shown_forms import REFERENCE_BYTES, SHOWN_BYTES, Columns, ShownRun
from gateway.records.message_ids import message_ids

if TYPE_CHECKING:
    from gateway.queues.manager import Queue

_ESCAPED: Final = bytes([*range(0x20), 0x22, 0x5C])  # JSON escapes them, or SQS refuses them
_BETWEEN: Final = b'",\n  "'  # between two texts; inside a text a line feed is escaped
_WITHOUT_BRACKETS: Final = slice(len(b'[\n  "'), -len(b'"\n]'))
_FIRST: Final = b'{"Messages":[{"MessageId":"'
_LAST: Final = b'"}]}'
# A message after the first; the empty parts are its id, digest, body and receipt handle.
_PARTS: Final = [
    *(b'"},{"MessageId":"', b"", b'","MD5OfBody":"', b"", b'","Body":"', b""),
    *(b'","ReceiptHandle":"', b""),
]
_STEP: Final = len(_PARTS)
# Memory of a message: an id, a digest, and references; the text is in the run.
_SHOWN_BYTES: Final = 36 + 32 + 2 * SHOWN_BYTES + 4 * REFERENCE_BYTES
_SHOWN_RUN_BYTES: Final = 600  # the columns of a run
SYSTEM_ATTRIBUTES: Final = 3  # a column; empty where a message has more attributes
_SENT: Final = b',"SentTimestamp":'  # a text of JSON has no quotation mark without a backslash
_SYSTEM_ATTRIBUTE_NAMES: Final = frozenset(
    {
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
    }
)
_ENCODING: Final = {BODY_ENCODING: MessageAttribute("String", BASE64)}
_IN_BASE64: Final = b',"MessageAttributes":%b,"MD5OfMessageAttributes":"%b"' % (
    orjson.dumps(to_result(_ENCODING)),
    md5_of_attributes(_ENCODING).encode(),
)


def plain_columns(partition: Partition, records: Sequence[Record]) -> Columns | None:
    """Return the columns of a JSON answer for records, or None when one of them is not plain.

    The columns are ids, digests, bodies, system attributes and encodings, as JSON has them. A plain
    record has no id of its own, is not null, and is no larger than a message may be as it is shown.
    The column ``SYSTEM_ATTRIBUTES`` is for receivers that ask for attributes of messages that have
    none but those of the system. The last column marks bodies that are not text and are shown in
    base64.
    """
    headers: Sequence[Header] | None = None
    stored = StoredHeaders()
    sent_unix_ms, of_sender = -1, b""
    values: list[bytes] = []
    system_attributes: list[bytes] = []
    keys: set[bytes] = set()
    for record in records:
        _, timestamp, key, value, found = record
        if found is not headers or timestamp != sent_unix_ms:  # messages of one send share them
            headers, sent_unix_ms = found, timestamp
            stored = read_headers(found)
            if stored.message_id is not None:
                return None
            of_sender = _stored_attributes_json(stored, timestamp)
        if value is None or len(value) > MESSAGE_BYTES_MAX:
            return None
        if stored.others and is_oversize(record, body_of(value), stored):
            return None
        values.append(value)
        system_attributes.append(b"" if key else of_sender)
        if key:
            keys.add(key)
    bodies, texts, encodings = _bodies(values)
    if any(encodings) and (
        None in map(to_text, keys) or max(map(len, bodies)) > MESSAGE_BYTES_MAX
    ):
        return None  # the attribute sqs.key would be needed
    return (
        message_ids(partition.topic.uuid, partition.number).row(records[0][0], len(records)),
        md5s_of_bodies(bodies),
        texts,
        system_attributes,
        encodings,
    )


def all_are_new(ranges: Sequence[DeliveredRange]) -> bool:
    """Return whether all messages are received for the first time, and at one time."""
    first_taken_unix_ms = ranges[0].first_taken_unix_ms
    return all(
        one.attempt == 1 and one.first_taken_unix_ms == first_taken_unix_ms for one in ranges
    )


def columns_of(queue: "Queue", ranges: Sequence[DeliveredRange]) -> Columns | None:
    """Return ``plain_columns`` of received ranges, None when one of their messages is not plain."""
    columns = queue.shown_of(ranges[0], plain_columns)
    for one in ranges[1:]:
        more = queue.shown_of(one, plain_columns)
        if columns is None or more is None:
            return None
        columns = [[*some, *others] for some, others in zip(columns, more, strict=True)]
    return columns


def _stored_attributes_json(stored: StoredHeaders, sent_unix_ms: int) -> bytes:
    """Return ``system_attributes_json`` of a message; empty when it has further attributes."""
    if (
        stored.others
        or stored.dead_letter
        or stored.trace is not None
        or stored.dedup_id is not None
    ):
        return b""
    return system_attributes_json(stored.sender or "", sent_unix_ms)


def system_attributes_json(sender: str, sent_unix_ms: int) -> bytes:
    """Return SenderId and SentTimestamp in JSON; an empty ``sender`` is anonymous."""
    return b'"SenderId":%b%b"%d"' % (orjson.dumps(sender or ANONYMOUS), _SENT, sent_unix_ms)


def attributes_json(
    system_attributes: Sequence[bytes], selected: frozenset[str] | None, taken_unix_ms: int
) -> list[bytes] | None:
    """Return the system attributes of messages that are received for the first time.

    They stand behind each receipt handle. ``selected`` is ``AttributeSelection.system``. None when
    the messages have none of the selected attributes.
    """
    names = _SYSTEM_ATTRIBUTE_NAMES if selected is None else _SYSTEM_ATTRIBUTE_NAMES & selected
    if not names:
        return None
    rest: list[bytes] = []
    if "ApproximateReceiveCount" in names:
        rest.append(b'"ApproximateReceiveCount":"1"')
    if "ApproximateFirstReceiveTimestamp" in names:
        rest.append(b'"ApproximateFirstReceiveTimestamp":"%d"' % taken_unix_ms)
    made: dict[bytes, bytes] = {}  # as many as there were sends, mostly one
    for one in system_attributes:
        if one not in made:
            sender, _, sent = one.partition(_SENT)
            parts = [sender] if "SenderId" in names else []
            if "SentTimestamp" in names:
                parts.append(_SENT[1:] + sent)
            made[one] = b'","Attributes":{%b}' % b",".join(parts + rest)
    return [made[one] for one in system_attributes]


def needs_no_escapes(data: bytes) -> bool:
    """Return whether bytes are ASCII text of SQS that JSON takes without escapes."""
    return data.isascii() and len(data.translate(None, _ESCAPED)) == len(data)


def shown_run(
    ids: Sequence[bytes],
    digests: Sequence[bytes],
    texts: Sequence[bytes],
    system_attributes: bytes,
) -> ShownRun:
    """Return the result of ``plain_columns`` for messages that were just sent."""
    count = len(ids)
    columns = (ids, digests, texts, [system_attributes] * count, [b""] * count)
    return ShownRun(plain_columns, columns, _SHOWN_RUN_BYTES + _SHOWN_BYTES * count)


def _bodies(values: list[bytes]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return bodies as they are digested, as JSON quotes them, and their encodings."""
    if needs_no_escapes(b"".join(values)):
        return values, values, [b""] * len(values)
    texts = [to_text(value) for value in values]
    encodings = [_IN_BASE64 if text is None else b"" for text in texts]
    bodies = values
    if None in texts:
        bodies = [
            b64encode(value) if encoding else value
            for value, encoding in zip(values, encodings, strict=True)
        ]
        texts = [body.decode() for body in bodies]
    in_json = orjson.dumps(texts, option=orjson.OPT_INDENT_2)[_WITHOUT_BRACKETS].split(_BETWEEN)
    return bodies, in_json, encodings


def receive_body(
    shown: Columns, handles: Sequence[bytes], attributes: Sequence[bytes] | None = None
) -> bytes:
    """Return the body of an answer to ReceiveMessage; ``attributes`` are ``attributes_json``'s."""
    parts = _PARTS * len(handles)
    parts[1::_STEP], parts[3::_STEP], parts[5::_STEP], _, encodings = shown
    last = _LAST
    if any(encodings):
        attributes = list(map(add, attributes or [b'"'] * len(encodings), encodings))
    if attributes is not None:  # they begin with the quotation mark behind the handle
        handles = list(map(add, handles, attributes))
        parts[0::_STEP] = [_PARTS[0][1:]] * len(handles)
        last = _LAST[1:]
    parts[7::_STEP] = handles
    parts[0] = _FIRST
    parts.append(last)
    return b"".join(parts)


def all_deleted_body(entry_ids: Sequence[str]) -> bytes:
    """Return the body of an answer to DeleteMessageBatch without failed entries.

    The ids consist of letters, digits, hyphens and underscores.
    """
    ids = '"},{"Id":"'.join(entry_ids)
    return f'{{"Successful":[{{"Id":"{ids}"}}]}}'.encode("ascii")
