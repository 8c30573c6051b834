"""Skipping of unwanted records by their lengths; most of them are not decoded.

Who is far behind wants few of the records that lie before the live end. A record is 0.3 us here,
1.5 to 5 us when it is decoded.
"""

import re
from collections.abc import Callable
from typing import Final

from adapters.mqtt.records.headers import TOPIC, read_nullable
from adapters.mqtt.subscriptions.filters import is_topic_name
from gateway.model import VARINT_CONTINUES, read_varint

TOPIC_BYTES: Final = TOPIC.encode()
_TOPIC_NAME: Final = bytes((2 * len(TOPIC_BYTES),)) + TOPIC_BYTES  # the name of that header
_KEY_AND_VALUE: Final = (0, 1)
_PLAIN_BYTES_MAX: Final = 1_024
_ODD_BYTE: Final = re.compile(rb"[^ -\"%-*,-~]")  # most names have none


def skip_records(
    data: bytes,
    position: int,
    left: int,
    wants: Callable[[bytes], bool],
    *,
    may_name_topics: bool,
) -> tuple[int, int]:
    """Return where the next record begins that may be wanted, and how many are left from it on.

    ``data`` are the records of a batch, ``position`` is where one of the ``left`` ones begins;
    ``may_name_topics``: the name of the header that names a topic is somewhere in them.
    What a record says of itself is believed here: of one that is wanted, all is checked when it
    is decoded. Varints of one byte are read in place, lengths of two bytes too. Errors:
    ``IndexError`` where the data ends too early.
    """
    while left:
        size, at = data[position], position + 1
        if size >= VARINT_CONTINUES:
            if (high := data[at]) < VARINT_CONTINUES:
                size += (high << 7) - VARINT_CONTINUES
                at += 1
            else:
                length, at = read_varint(data, position)
                size = max(length, 0) << 1
        end = at + (size >> 1)
        at += 1  # the attributes; then two deltas, of which only the end matters
        while data[at] >= VARINT_CONTINUES:
            at += 1
        at += 1
        while data[at] >= VARINT_CONTINUES:
            at += 1
        at += 1
        if (size := data[at]) < VARINT_CONTINUES:
            topic: bytes | None = data[at + 1 : at + 1 + (size >> 1)]  # empty when it is null
        else:
            topic = read_nullable(data, at)[0] or b""
        if may_name_topics and data.find(TOPIC_BYTES, at, end) >= 0:
            topic = _first_header_topic(data, at, end)
        if topic is None or wants(topic):
            return position, left
        position = end
        left -= 1
    return position, left


def _first_header_topic(data: bytes, position: int, end: int) -> bytes | None:
    """Return the topic that a record's first header names; None when that is not so.

    ``position`` is where the key begins, with its length, and ``end`` where the record ends.
    Error: ``IndexError``.
    """
    for _ in _KEY_AND_VALUE:
        if (size := data[position]) < VARINT_CONTINUES:
            position += 1 + (size >> 1)
        else:
            size, position = read_varint(data, position)
            position += max(size, 0)
    # The count of headers has one byte where the gateway wrote it.
    if not data.startswith(_TOPIC_NAME, position + 1, end):
        return None
    topic, _ = read_nullable(data, position + 1 + len(_TOPIC_NAME))
    if topic is None:
        return None
    is_plain = 0 < len(topic) <= _PLAIN_BYTES_MAX and _ODD_BYTE.search(topic) is None
    return topic if is_plain or is_topic_name(topic) else None
