"""Frames to commands and back, in both serializations and in the dialects of clients."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.rocketmq.remoting.codec import FIELDS_MAX, decode_frame, encode_frame
from adapters.rocketmq.remoting.wire import (
    LANGUAGES,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
    RequestCode,
    Serialization,
)
from gateway.errors import PeerError

I32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text('ab\0"\\\x01é日😀', max_size=9)
COMMANDS = st.builds(
    Command,
    code=st.integers(-(2**15) + 1, 2**15 - 1),
    fields=st.dictionaries(TEXT, TEXT, max_size=5),
    body=st.binary(max_size=50),
    opaque=I32,
    flag=st.integers(0, 3),
    version=st.integers(0, 2**15 - 1),
    language=st.sampled_from(LANGUAGES),
    remark=st.none() | TEXT.filter(bool),
    serialization=st.sampled_from(Serialization),
)


def decoded(frame: bytes) -> Command:
    """Decode a frame with its length, the body as bytes."""
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    command = decode_frame(memoryview(frame)[4:])
    return command._replace(body=bytes(command.body))


def framed(header: object, body: bytes = b"") -> memoryview:
    """Return a frame's content with a JSON header, as other clients write it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return memoryview(struct.pack(">I", len(text)) + text + body)


@given(COMMANDS)
def test_a_command_comes_back_as_it_was(command: Command) -> None:
    assert decoded(encode_frame(command)) == command


def test_a_response_is_what_the_java_server_sends() -> None:
    """The header is that of a response of RocketMQ 5.5.0 on the wire."""
    answer = Command(34, opaque=1).answer(0, {"a": "b"})

    assert encode_frame(answer)[8:] == (
        b'{"code":0,"extFields":{"a":"b"},"flag":1,"language":"JAVA","opaque":1,'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )


def test_a_binary_header_has_the_fields_of_rocketmq_serializable() -> None:
    command = Command(
        105,
        {"topic": "t"},
        b"body",
        opaque=7,
        flag=ONEWAY_FLAG,
        version=513,
        language="GO",
        remark="no",
        serialization=Serialization.ROCKETMQ,
    )
    fields = struct.pack(">h5si1s", 5, b"topic", 1, b"t")
    header = struct.pack(">hbhii", 105, 9, 513, 7, 2) + struct.pack(">i2s", 2, b"no")
    header += struct.pack(">i", len(fields)) + fields

    assert (
        encode_frame(command)[4:] == struct.pack(">I", 1 << 24 | len(header)) + header + b"body"
    )


def test_numbers_booleans_and_a_line_feed_of_the_cpp_client_are_read() -> None:
    header = (
        b'{"code":11,"language":"CPP","version":63,"opaque":4,"flag":0,"remark":"",'
        b'"extFields":{"queueId":0,"wait":true,"x":null,"y":1.5}}\n'
    )

    command = decode_frame(framed(header, b"abc"))

    assert command.fields == {"queueId": "0", "wait": "true", "y": "1.5"}
    assert (command.language, command.version, bytes(command.body)) == ("CPP", 63, b"abc")


@pytest.mark.parametrize(
    ("given_language", "name"), [(9, "GO"), ("ELIXIR", "OTHER"), (99, "OTHER")]
)
def test_a_language_is_a_name_or_a_number(given_language: object, name: str) -> None:
    assert decode_frame(framed({"code": 1, "language": given_language})).language == name


def test_flags_tell_responses_and_oneway_requests() -> None:
    assert Command(1, flag=RESPONSE_FLAG).is_response
    assert Command(1, flag=ONEWAY_FLAG).is_oneway
    assert not Command(1).is_response
    assert not Command(1).is_oneway


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\0",
        struct.pack(">I", 9) + b"{}",  # longer than the frame
        struct.pack(">I", 2 << 24 | 2) + b"{}",  # a third serialization
        bytes(framed(b"{")),
        bytes(framed(b"[]")),
        bytes(framed(b"\xff")),
        bytes(framed({})),  # no code
        bytes(framed({"code": "1"})),
        bytes(framed({"code": True})),
        bytes(framed({"code": 2**31})),
        bytes(framed({"code": 1, "opaque": None})),
        bytes(framed({"code": 1, "extFields": []})),
        bytes(framed({"code": 1, "extFields": {"a": {}}})),
        bytes(
            framed({"code": 1, "extFields": dict.fromkeys(map(str, range(FIELDS_MAX + 1)), "")})
        ),
        bytes(framed(b"[" * 100_000)),
        struct.pack(">I", 1 << 24 | 4) + b"\0\1\0\0",
        struct.pack(">Ihbhiii", 1 << 24 | 21, 1, 0, 0, 0, 0, 1 << 30),
        struct.pack(">Ihbhiiii", 1 << 24 | 25, 1, 0, 0, 0, 0, 0, -1),
        struct.pack(">Ihbhiiiih", 1 << 24 | 27, 1, 0, 0, 0, 0, 0, 2, -1),
    ],
)
def test_a_header_that_cannot_be_read_ends_the_connection(content: bytes) -> None:
    with pytest.raises(PeerError):
        decode_frame(memoryview(content))


@given(COMMANDS, st.data())
def test_a_mutated_frame_is_a_command_or_the_peers_fault(
    command: Command, data: st.DataObject
) -> None:
    frame = bytearray(encode_frame(command)[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(0, len(frame))) :]

    try:
        found = decode_frame(memoryview(frame))
    except PeerError:
        return
    assert all(isinstance(text, str) for one in found.fields.items() for text in one)


def test_a_code_above_16_bits_does_not_fit_a_binary_header() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_frame(Command(200_050, serialization=Serialization.ROCKETMQ))
    assert decoded(encode_frame(Command(200_050))).code == 200_050


def test_codes_have_the_numbers_of_the_protocol() -> None:
    assert int(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 105
    assert int(RequestCode.SEND_MESSAGE_V2) == 310
