"""Properties of contents: both ways, and against pamqp."""

import contextlib

import pamqp.frame
import pamqp.header
from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.v091.errors import AmqpFault
from adapters.amqp.v091.framing import encode_content
from adapters.amqp.v091.properties import Properties, decode_properties, encode_properties
from tests.adapters.amqp.v091.test_fields import TABLES

_SHORT = st.one_of(st.none(), st.text(max_size=60))
PROPERTIES = st.builds(
    Properties,
    content_type=_SHORT,
    content_encoding=_SHORT,
    headers=st.one_of(st.none(), TABLES),
    delivery_mode=st.sampled_from([None, 1, 2]),
    priority=st.one_of(st.none(), st.integers(0, 255)),
    correlation_id=_SHORT,
    reply_to=_SHORT,
    expiration=_SHORT,
    message_id=_SHORT,
    timestamp=st.one_of(st.none(), st.integers(0, (1 << 63) - 1)),
    type=_SHORT,
    user_id=_SHORT,
    app_id=_SHORT,
    cluster_id=_SHORT,
)


@given(PROPERTIES)
def test_any_properties_come_back(properties: Properties) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(st.binary(max_size=60))
def test_any_bytes_are_properties_or_refused(data: bytes) -> None:
    with contextlib.suppress(AmqpFault):
        decode_properties(data)


def test_pamqp_decodes_them() -> None:
    properties = Properties(
        "text/plain", delivery_mode=2, priority=5, message_id="m", app_id="a"
    )
    [header, _] = encode_content(1, encode_properties(properties), b"body", 4_096)
    _, _, found = pamqp.frame.unmarshal(header)
    assert isinstance(found, pamqp.header.ContentHeader)
    assert found.body_size == 4
    assert found.properties.content_type == "text/plain"
    assert (found.properties.priority, found.properties.app_id) == (5, "a")


def test_a_body_is_cut_to_the_size_of_frames() -> None:
    frames = encode_content(1, b"\0\0", bytes(10_000), 4_096)
    assert [len(frame) for frame in frames] == [22, 4_096, 4_096, 1_832]
    assert len(encode_content(1, b"\0\0", b"", 4_096)) == 1
