"""Plain messages in a row, as octets of the JSON protocol: what most receives and deletes are.

What is answered is what ``received.plain_message`` and ``batches.batch_result`` give, written
down without a dict for each message. What is shown of a message but for its receipt handle is made
once for all receives.
"""

from collections.abc import Sequence
from typing import Final

import orjson

from adapters.sqs.mapping import MESSAGE_BYTES_MAX, Header, read_headers
from adapters.sqs.md5 import md5s_of_bodies
from adapters.sqs.text import to_text
from gateway.message_ids import message_ids
from gateway.model import Record
from gateway.partition import Partition
from gateway.queue_rows import Columns, ShownRun

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
_SHOWN_BYTES: Final = 36 + 32 + 2 * 33  # an id and a digest; the text is in the run


def show_plain(partition: Partition, records: Sequence[Record]) -> Columns | None:
    """Return ids, digests and bodies of records, as JSON has them; None when one is not plain.

    Plain is a text, not above what a message may have, without attributes or an id of its own.
    """
    headers: Sequence[Header] = ()
    values: list[bytes] = []
    for _, _, _, value, found in records:
        if found is not headers:  # those of one sender are shared
            headers = found
            stored = read_headers(found)
            if stored.others or stored.message_id is not None:
                return None
        if value is None or len(value) > MESSAGE_BYTES_MAX:
            return None
        values.append(value)
    texts = _in_json(values)
    if texts is None:
        return None
    return (
        message_ids(partition.topic.uuid, partition.number).row(records[0][0], len(records)),
        md5s_of_bodies(values),
        texts,
    )


def is_own_json(octets: bytes) -> bool:
    """Say whether octets are text of SQS that stands in JSON as it is."""
    return octets.isascii() and len(octets.translate(None, _ESCAPED)) == len(octets)


def shown_run(
    ids: Sequence[bytes], digests: Sequence[bytes], texts: Sequence[bytes]
) -> ShownRun:
    """Return what ``show_plain`` would say of messages that were just sent."""
    return ShownRun(show_plain, (ids, digests, texts), _SHOWN_BYTES * len(ids))


def _in_json(values: list[bytes]) -> list[bytes] | None:
    """Return what JSON has between quotation marks, None where one of them is no text of SQS."""
    if is_own_json(b"".join(values)):
        return values
    texts = [to_text(value) for value in values]
    if None in texts:
        return None
    return orjson.dumps(texts, option=orjson.OPT_INDENT_2)[_AROUND].split(_BETWEEN)


def messages_body(shown: Columns, handles: Sequence[bytes]) -> bytes:
    """Return the body of an answer to ReceiveMessage."""
    parts = _PARTS * len(handles)
    parts[1::_STEP], parts[3::_STEP], parts[5::_STEP] = shown
    parts[7::_STEP] = handles
    parts[0] = _FIRST
    parts.append(_LAST)
    return b"".join(parts)


def all_deleted_body(entry_ids: Sequence[str]) -> bytes:
    """Return the body of an answer to DeleteMessageBatch of which no entry has failed.

    The ids are of letters, digits, hyphens and underscores.
    """
    ids = '"},{"Id":"'.join(entry_ids)
    return f'{{"Successful":[{{"Id":"{ids}"}}],"Failed":[]}}'.encode("ascii")
