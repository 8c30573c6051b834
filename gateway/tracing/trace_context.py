"""Trace context of a message: W3C Trace Context, header ``traceparent`` (section 3.2)."""

import re
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED: Final = 1
_INVALID_VERSION: Final = b"ff"


class TraceContext(NamedTuple):
    """Trace and the span of it that has sent a message."""

    trace_id: bytes
    span_id: bytes


def parse_sampled(text: bytes | None) -> TraceContext | None:
    """Return the context of a ``traceparent``; None if it is not sampled, or is not one.

    >>> parse_sampled(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").span_id.hex()
    'b7ad6b7169203331'
    >>> parse_sampled(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
    """
    found = None if text is None else _FORM.fullmatch(text)
    if found is None:
        return None
    version, trace, span, flags, rest = found.groups()
    if version == _INVALID_VERSION or (version == b"00" and rest):
        return None
    trace_id, span_id = bytes.fromhex(trace.decode()), bytes.fromhex(span.decode())
    if not int(flags, 16) & _SAMPLED or not any(trace_id) or not any(span_id):
        return None
    return TraceContext(trace_id, span_id)
