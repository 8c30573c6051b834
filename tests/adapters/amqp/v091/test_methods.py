"""Methods: every one of them both ways, held against pamqp's codec."""

import contextlib
from dataclasses import fields
from typing import Any, get_type_hints

import pamqp.base
import pamqp.commands
import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.v091.errors import AmqpFault
from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.framing import FrameReader, encode_method_frame
from adapters.amqp.v091.methods.codec import decode_method, encode_method
from adapters.amqp.v091.methods.model import METHODS, Method

VALUES: dict[str, list[Any]] = {
    "byte": [0, 9],
    "short": [0, 65_535],
    "long": [0, 131_072],
    "longlong": [1, 1 << 60],
    "shortstr": ["", "name", "ü" * 127],
    "longstr": [b"", b"words"],
    "bit": [False, True],
    "table": [Table(), Table([("a", Field("S", "b")), ("n", Field("I", 1 << 20))])],
}


def methods() -> list[Method]:
    found = []
    for made in METHODS.values():
        hints = get_type_hints(made, include_extras=True)
        kinds = [hints[one.name].__metadata__[0] for one in fields(made)]  # type: ignore[arg-type]
        found += [made(*[VALUES[kind][which] for kind in kinds]) for which in (0, -1)]
    return found


@pytest.mark.parametrize("method", methods(), ids=lambda one: one.NAME)
def test_a_method_comes_back(method: Method) -> None:
    assert decode_method(encode_method(method)) == method


def is_known_to_pamqp(method: Method) -> bool:
    return method.INDEX[0] << 16 | method.INDEX[1] in pamqp.commands.INDEX_MAPPING


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@pytest.mark.parametrize(
    "method", [one for one in methods() if is_known_to_pamqp(one)], ids=lambda one: one.NAME
)
def test_a_method_is_what_pamqp_decodes(method: Method) -> None:
    _, channel, found = pamqp.frame.unmarshal(encode_method_frame(3, method))
    assert channel == 3
    assert isinstance(found, pamqp.base.Frame)
    assert found.frame_id == method.INDEX[1]


@given(st.binary(max_size=40), st.sampled_from(sorted(METHODS)))
def test_any_bytes_are_a_method_or_refused(data: bytes, index: tuple[int, int]) -> None:
    payload = index[0].to_bytes(2, "big") + index[1].to_bytes(2, "big") + data
    with contextlib.suppress(AmqpFault):
        decode_method(payload)


@given(st.lists(st.binary(max_size=30), max_size=8), st.data())
def test_frames_are_cut_wherever_reads_end(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(
        bytes((1,)) + (7).to_bytes(2, "big") + len(one).to_bytes(4, "big") + one + b"\xce"
        for one in payloads
    )
    reader = FrameReader(4_096)
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += [frame.payload for frame in reader.receive(stream[:size])]
        stream = stream[size:]
    assert found == payloads
    assert reader.kept_bytes == 0
