"""Dead letters as rows: decoded headers, and a fingerprint of the reason.

features/dead_letter.py writes the headers; gateway/model.py defines them for both.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from gateway.model import (
    DLQ_ATTEMPTS,
    DLQ_GROUP,
    DLQ_PREFIX,
    DLQ_PROTOCOL,
    DLQ_REASON,
    DLQ_SOURCE_OFFSET,
    DLQ_SOURCE_PARTITION,
    DLQ_SOURCE_TOPIC,
    Headers,
)

REPLAYED: Final = "dlq.replayed"

NO_REASON: Final = "no reason given"
REASON_CHARS_MAX: Final = 200
_PICK_CHARS: Final = 8
_DIGITS_MAX: Final = 18
_US_PER_MS: Final = 1_000

# In this order, since ids have digits and a quoted part can have anything.
_VARIABLE: Final = (
    (re.compile(r"\"[^\"]*\"|(?<!\w)'[^']*'|`[^`]*`"), "<text>"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{12,}\b"), "<id>"),
    (re.compile(r"(?<![\w.])[-+]?\d[\d.,:]*(?:\b|$)"), "<n>"),
    (re.compile(r"\d+"), "<n>"),
)

SAID_COLUMNS: Final = (
    ("pick", pa.string()),
    ("reason", pa.string()),
    ("source_topic", pa.string()),
    ("source_partition", pa.int64()),
    ("source_offset", pa.int64()),
    ("group", pa.string()),
    ("attempts", pa.int64()),
    ("protocol", pa.string()),
    ("unix_ms", pa.int64()),
)
"""Columns that ``describe`` adds after the columns of the log."""


class Said(NamedTuple):
    """Decoded headers of a dead letter, in the order of ``SAID_COLUMNS``."""

    pick: str
    reason: str
    source_topic: str
    source_partition: int
    source_offset: int
    group: str
    attempts: int
    protocol: str


def fingerprint(reason: str) -> str:
    """Return the common form of reasons of one kind.

    >>> fingerprint("order 17 of 'Anna' took 3.5 s"), fingerprint("no row 4bf92f3577b34da6a3ce")
    ('order <n> of <text> took <n> s', 'no row <id>')
    """
    text = " ".join(reason.split())[:REASON_CHARS_MAX]
    for pattern, name in _VARIABLE:
        text = pattern.sub(name, text)
    return text or NO_REASON


def read_headers(topic: str, headers: Headers) -> Said:
    """Decode the headers of a record of ``topic``.

    ``pick`` is a short name for all letters of one topic, reason, source, group and protocol.
    Any client can write such headers: an invalid number is -1, and the first of a name counts.
    """
    said: dict[str, str] = {}
    for name, value in headers:
        if value is not None and name.startswith(DLQ_PREFIX):
            said.setdefault(name, value.decode("utf-8", "replace"))
    reason = fingerprint(said.get(DLQ_REASON, ""))
    source, group = said.get(DLQ_SOURCE_TOPIC, ""), said.get(DLQ_GROUP, "")
    protocol = said.get(DLQ_PROTOCOL, "")
    whole = f"{topic}\0{reason}\0{source}\0{group}\0{protocol}"
    return Said(
        hashlib.sha256(whole.encode()).hexdigest()[:_PICK_CHARS],
        reason,
        source,
        _number(said.get(DLQ_SOURCE_PARTITION, "")),
        _number(said.get(DLQ_SOURCE_OFFSET, "")),
        group,
        _number(said.get(DLQ_ATTEMPTS, "")),
        protocol,
    )


def header_pairs(headers: Iterable[Any]) -> list[tuple[str, bytes | None]]:
    """Return the headers of a row of Spark or Arrow as pairs."""
    return [
        (one["key"], None if one["value"] is None else bytes(one["value"]))
        for one in headers or ()
    ]


def described(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the result of ``describe``."""
    for name, kind in SAID_COLUMNS:
        schema = schema.append(pa.field(name, kind))
    return schema


def describe(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Append the decoded headers as columns; runs in a worker of Spark."""
    for batch in rows:
        topics = batch.column("topic").to_pylist()
        headers = batch.column("headers").to_pylist()
        found = [
            read_headers(topic, header_pairs(some))
            for topic, some in zip(topics, headers, strict=True)
        ]
        columns = list(zip(*found, strict=True)) or [()] * len(Said._fields)
        stamps = batch.column("timestamp").cast(pa.int64())
        said = [
            pa.array(column, kind)
            for column, (_, kind) in zip(columns, SAID_COLUMNS, strict=False)
        ]
        said.append(pc.divide(stamps, _US_PER_MS))  # milliseconds, as in the log
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, *said], schema=described(batch.schema)
        )


def _number(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else -1
