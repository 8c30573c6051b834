"""Plain messages in a row, as bytes of the JSON protocol: what most receives and deletes are.

What is answered is what ``received.plain_message`` and ``batches.batch_result`` give, written
down without a dict for each message. What is shown of a message but for its receipt handle is made
once for all receives.
"""

from base64 import b64encode
from collections.abc import Sequence
from operator import add
from typing import Final

import orjson

from adapters.sqs.mapping import (
    BASE64,
    BODY_MARK,
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
from gateway.queues.contiguous import REFERENCE_BYTES, SHOWN_BYTES, Columns, ShownRun
from gateway.records.message_ids import message_ids

_ESCAPED: Final = bytes([*range(0x20), 0x22, 0x5C])  # in JSON, or no text of SQS
_BETWEEN: Final = b'",\n  "'  # two texts; within one, the end of a line is escaped
_AROUND: Final = slice(len(b'[\n  "'), -len(b'"\n]'))  # all of them
_FIRST: Final = b'{"Messages":[{"MessageId":"'
_LAST: Final = b'"}]}'
# Of a message but the first; what is empty here is its own: id, digest, body, receipt handle.
_PARTS: Final = [
    *(b'"},{"MessageId":"', b"", b'","MD5OfBody":"', b"", b'","Body":"', b""),
    *(b'","ReceiptHandle":"', b""),
]
_STEP: Final = len(_PARTS)
# In memory, of a message: an id, a digest, and references; the text is in the run.
_SHOWN_BYTES: Final = 36 + 32 + 2 * SHOWN_BYTES + 4 * REFERENCE_BYTES
_SHOWN_RUN_BYTES: Final = 600  # the columns of a run
ABOUT: Final = 3  # a column: empty where not all is said by it
_SENT: Final = b',"SentTimestamp":'  # a text of JSON has no quotation mark without a backslash
_ABOUT_NAMES: Final = frozenset(
    {
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
    }
)
_MARK: Final = {BODY_MARK: MessageAttribute("String", BASE64)}
_IN_BASE64: Final = b',"MessageAttributes":%b,"MD5OfMessageAttributes":"%b"' % (
    orjson.dumps(to_result(_MARK)),
    md5_of_attributes(_MARK).encode(),
)


def show_plain(partition: Partition, records: Sequence[Record]) -> Columns | None:
    """Return ids, digests and bodies of records, as JSON has them; None when one is not plain.

    Plain is what has no id of its own, is not null, and not above what a message may have as it is
    shown. The column ``ABOUT`` is for those who ask for attributes, where there are none but those
    of the system. The last one has the mark of what is no text, and is shown in base64.
    """
    headers: Sequence[Header] | None = None
    stored = StoredHeaders()
    sent_unix_ms, of_sender = -1, b""
    values: list[bytes] = []
    abouts: list[bytes] = []
    keys: set[bytes] = set()
    for record in records:
        _, timestamp, key, value, found = record
        if found is not headers or timestamp != sent_unix_ms:  # those of one send are shared
            headers, sent_unix_ms = found, timestamp
            stored = read_headers(found)
            if stored.message_id is not None:
                return None
            of_sender = _about_stored(stored, timestamp)
        if value is None or len(value) > MESSAGE_BYTES_MAX:
            return None
        if stored.others and is_oversize(record, body_of(value), stored):
            return None
        values.append(value)
        abouts.append(b"" if key else of_sender)
        if key:
            keys.add(key)
    bodies, texts, marks = _bodies(values)
    if any(marks) and (None in map(to_text, keys) or max(map(len, bodies)) > MESSAGE_BYTES_MAX):
        return None  # such a key has a mark beside the body's
    return (
        message_ids(partition.topic.uuid, partition.number).row(records[0][0], len(records)),
        md5s_of_bodies(bodies),
        texts,
        abouts,
        marks,
    )


def _about_stored(stored: StoredHeaders, sent_unix_ms: int) -> bytes:
    """Return ``about`` of a message, nothing where there is more to be said of it."""
    if (
        stored.others
        or stored.dead_letter
        or stored.trace is not None
        or stored.dedup_id is not None
    ):
        return b""
    return about(stored.sender or "", sent_unix_ms)


def about(sender: str, sent_unix_ms: int) -> bytes:
    """Return what the attributes of a message begin with, as JSON has it; "" is nobody known."""
    return b'"SenderId":%b%b"%d"' % (orjson.dumps(sender or ANONYMOUS), _SENT, sent_unix_ms)


def attributes_of(
    abouts: Sequence[bytes], wanted: frozenset[str] | None, taken_unix_ms: int
) -> list[bytes] | None:
    """Return what stands behind the receipt handles of messages that are taken the first time.

    ``wanted`` as in ``received.Wanted.system``. None when nothing that they have is.
    """
    names = _ABOUT_NAMES if wanted is None else _ABOUT_NAMES & wanted
    if not names:
        return None
    rest: list[bytes] = []
    if "ApproximateReceiveCount" in names:
        rest.append(b'"ApproximateReceiveCount":"1"')
    if "ApproximateFirstReceiveTimestamp" in names:
        rest.append(b'"ApproximateFirstReceiveTimestamp":"%d"' % taken_unix_ms)
    made: dict[bytes, bytes] = {}  # mostly one, as many as there were sends
    for one in abouts:
        if one not in made:
            sender, _, sent = one.partition(_SENT)
            parts = [sender] if "SenderId" in names else []
            if "SentTimestamp" in names:
                parts.append(_SENT[1:] + sent)
            made[one] = b'","Attributes":{%b}' % b",".join(parts + rest)
    return [made[one] for one in abouts]


def is_own_json(data: bytes) -> bool:
    """Say whether bytes are text of SQS that stands in JSON as it is."""
    return data.isascii() and len(data.translate(None, _ESCAPED)) == len(data)


def shown_run(
    ids: Sequence[bytes], digests: Sequence[bytes], texts: Sequence[bytes], about_all: bytes
) -> ShownRun:
    """Return what ``show_plain`` would say of messages that were just sent."""
    count = len(ids)
    columns = (ids, digests, texts, [about_all] * count, [b""] * count)
    return ShownRun(show_plain, columns, _SHOWN_RUN_BYTES + _SHOWN_BYTES * count)


def _bodies(values: list[bytes]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return bodies of messages, what JSON has of them between quotation marks, and their marks."""
    if is_own_json(b"".join(values)):
        return values, values, [b""] * len(values)
    texts = [to_text(value) for value in values]
    marks = [_IN_BASE64 if text is None else b"" for text in texts]
    bodies = values
    if None in texts:
        bodies = [
            b64encode(value) if mark else value
            for value, mark in zip(values, marks, strict=True)
        ]
        texts = [body.decode() for body in bodies]
    in_json = orjson.dumps(texts, option=orjson.OPT_INDENT_2)[_AROUND].split(_BETWEEN)
    return bodies, in_json, marks


def messages_body(
    shown: Columns, handles: Sequence[bytes], attributes: Sequence[bytes] | None = None
) -> bytes:
    """Return the body of an answer to ReceiveMessage; ``attributes``: see ``attributes_of``."""
    parts = _PARTS * len(handles)
    parts[1::_STEP], parts[3::_STEP], parts[5::_STEP], _, marks = shown
    last = _LAST
    if any(marks):
        attributes = list(map(add, attributes or [b'"'] * len(marks), marks))
    if attributes is not None:  # they bring the quotation mark behind the handle
        handles = list(map(add, handles, attributes))
        parts[0::_STEP] = [_PARTS[0][1:]] * len(handles)
        last = _LAST[1:]
    parts[7::_STEP] = handles
    parts[0] = _FIRST
    parts.append(last)
    return b"".join(parts)


def all_deleted_body(entry_ids: Sequence[str]) -> bytes:
    """Return the body of an answer to DeleteMessageBatch of which no entry has failed.

    The ids are of letters, digits, hyphens and underscores.
    """
    ids = '"},{"Id":"'.join(entry_ids)
    return f'{{"Successful":[{{"Id":"{ids}"}}]}}'.encode("ascii")
