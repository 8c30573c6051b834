"""Arguments of streams and of their consumers, parsed as RabbitMQ does.

https://www.rabbitmq.com/docs/streams, and RabbitMQ's ``rabbit_stream_queue``.
"""

import re
from enum import Enum
from typing import Final, NamedTuple

from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import Field, Table
from gateway.model import Headers

OFFSET: Final = "x-stream-offset"
FILTER: Final = "x-stream-filter"
MATCH_UNFILTERED: Final = "x-stream-match-unfiltered"
FILTER_VALUE: Final = "x-stream-filter-value"  # header of a message
FILTERS_MAX: Final = 1_000
SEGMENT_BYTES_MAX: Final = 3_000_000_000
FILTER_BYTES: Final = range(16, 256)
_DAY_MS: Final = 86_400_000
_UNITS_MS: Final = {
    "Y": 365 * _DAY_MS,
    "M": 30 * _DAY_MS,
    "D": _DAY_MS,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
}
_SPAN: Final = re.compile(r"([0-9]{1,19})([YMDhms])")
_INTEGERS: Final = frozenset("bBsuIilL")
_MS_MAX: Final = (1 << 63) - 1


def parse_span(text: str) -> int | None:
    """Return the milliseconds of a span, as ``7D``; None for what is no span above 0.

    >>> parse_span("7D"), parse_span("90s"), parse_span("0h"), parse_span("week")
    (604800000, 90000, None, None)
    """
    found = _SPAN.fullmatch(text)
    if found is None or not int(found[1]):
        return None
    return min(int(found[1]) * _UNITS_MS[found[2]], _MS_MAX)


def check_sizes(arguments: Table) -> None:
    """Check the sizes of a new stream's files. Error: ``AmqpFault`` 406."""
    segment = arguments.value("x-stream-max-segment-size-bytes")
    if isinstance(segment, int) and segment > SEGMENT_BYTES_MAX:
        text = "Exceeded max value for x-stream-max-segment-size-bytes"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
    filter_bytes = arguments.value("x-stream-filter-size-bytes")
    if isinstance(filter_bytes, int) and filter_bytes not in FILTER_BYTES:
        text = "Invalid value for  x-stream-filter-size-bytes"  # two spaces, as RabbitMQ's
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)


def to_retention(arguments: Table) -> dict[str, str]:
    """Return the retention that checked arguments ask for, as configs of a topic."""
    configs: dict[str, str] = {}
    max_age = arguments.value("x-max-age")
    if isinstance(max_age, str):
        configs["retention.ms"] = str(parse_span(max_age))
    max_bytes = arguments.value("x-max-length-bytes")
    if isinstance(max_bytes, int):
        configs["retention.bytes"] = str(max_bytes)
    return configs


class StartAt(Enum):
    """Kind of place at which a consumer begins."""

    FIRST = "first"
    LAST = "last"  # the stored batch that is the last
    NEXT = "next"
    OFFSET = "offset"
    TIME = "time"


class StreamStart(NamedTuple):
    """Place at which a consumer begins; ``value``: an offset, or unix milliseconds."""

    at: StartAt
    value: int = 0


def parse_start(field: Field | None, now_unix_ms: int) -> StreamStart:
    """Return where a consumer with that ``x-stream-offset`` begins. Error: ``AmqpFault`` 406."""
    if field is None:
        return StreamStart(StartAt.NEXT)
    kind, value = field
    if kind == "T" and isinstance(value, int):
        return StreamStart(StartAt.TIME, value * 1_000)
    if isinstance(value, str):
        if value in {"first", "last", "next"}:
            return StreamStart(StartAt(value))
        span_ms = parse_span(value)
        if span_ms is not None:
            return StreamStart(StartAt.TIME, max(now_unix_ms - span_ms, 0))
    elif kind in _INTEGERS and isinstance(value, int) and value >= 0:
        return StreamStart(StartAt.OFFSET, value)
    shown = value.decode(errors="replace") if isinstance(value, bytes) else value
    text = f"invalid arg '{OFFSET}' for consumer: {{invalid_offset_arg,{shown}}}"
    raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)


class StreamFilter(NamedTuple):
    """Messages that a consumer asks for, by their header ``x-stream-filter-value``."""

    values: frozenset[str]
    match_unfiltered: bool

    def takes(self, value: str | None) -> bool:
        """Say whether a message with that value, or without one, is asked for."""
        return self.match_unfiltered if value is None else value in self.values


def parse_filter(arguments: Table) -> StreamFilter | None:
    """Return the filter of a consumer; None for all messages.

    Error: ``AmqpFault`` 406 above ``FILTERS_MAX`` values.
    """
    field = arguments.find(FILTER)
    if field is None:
        return None
    fields = field.value if isinstance(field.value, tuple) else (field,)
    values = [one.value for one in fields if isinstance(one, Field)]
    texts = frozenset(value for value in values if isinstance(value, str))
    if len(texts) > FILTERS_MAX:
        text = f"invalid arg '{FILTER}' for consumer: at most {FILTERS_MAX} values"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
    return StreamFilter(texts, arguments.value(MATCH_UNFILTERED) is True)


def filter_value(headers: Headers) -> str | None:
    """Return the value by which consumers filter a message; None without one."""
    for name, value in headers:
        if name == FILTER_VALUE and value is not None:
            return value.decode(errors="replace")
    return None
