"""traceparent: W3C Trace Context section 3.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tracing.trace_context import TraceContext, parse_sampled

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


@given(
    trace_id=st.binary(min_size=16, max_size=16).filter(any),
    span_id=st.binary(min_size=8, max_size=8).filter(any),
    flags=st.integers(0, 255),
)
def test_a_sampled_context_is_parsed_and_another_is_not(
    trace_id: bytes, span_id: bytes, flags: int
) -> None:
    text = f"00-{trace_id.hex()}-{span_id.hex()}-{flags:02x}".encode()
    expected = TraceContext(trace_id, span_id) if flags & 1 else None
    assert parse_sampled(text) == expected


@given(st.binary(max_size=80))
def test_any_bytes_are_accepted_or_ignored(data: bytes) -> None:
    assert parse_sampled(data) is None or data.count(b"-") >= 3


@pytest.mark.parametrize(
    "text",
    [
        f"ff-{TRACE}-{SPAN}-01",  # an invalid version
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",  # version 00 has four fields
        f"00-{TRACE}-{SPAN}-1",
        f" 00-{TRACE}-{SPAN}-01",
        "",
    ],
)
def test_what_the_specification_refuses_is_ignored(text: str) -> None:
    assert parse_sampled(text.encode()) is None


def test_a_later_version_may_have_more_fields() -> None:
    assert parse_sampled(f"cc-{TRACE}-{SPAN}-01-what-the-future".encode()) is not None


def test_no_value_is_no_context() -> None:
    assert parse_sampled(None) is None
