"""Messages in bodies: stored messages, batches, properties."""

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.message_codec import (
    BatchMember,
    StoredMessage,
    decode_batch,
    decode_messages,
    decode_properties,
    encode_batch,
    encode_host,
    encode_message,
    encode_properties,
    message_id,
)
from adapters.rocketmq.remoting.wire import ResponseCode
from gateway.config.base import Address

HOST = encode_host(Address("127.0.0.1", 10911))
HOST_V6 = encode_host(Address("::1", 10911))
PLAIN = st.text("ab\0=é日😀", min_size=1, max_size=9)
PROPERTIES = st.dictionaries(PLAIN, PLAIN, max_size=4)
I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
MESSAGES = st.builds(
    StoredMessage,
    topic=st.text("az%_-", min_size=1, max_size=127),
    queue_id=I32,
    queue_offset=I64,
    physical_offset=I64,
    flag=I32,
    born_unix_ms=I64,
    born_host=st.sampled_from([HOST, HOST_V6]),
    stored_unix_ms=I64,
    store_host=st.sampled_from([HOST, HOST_V6]),
    reconsume_times=I32,
    body=st.binary(max_size=50),
    properties=PROPERTIES,
)
MEMBERS = st.lists(
    st.builds(BatchMember, flag=I32, body=st.binary(max_size=50), properties=PROPERTIES),
    min_size=1,
    max_size=4,
)
MESSAGE = StoredMessage("t", 3, 7, 9, 1, 1_000, HOST, 2_000, HOST, 2, b"body", {"TAGS": "a"})


@given(st.lists(MESSAGES, max_size=4))
def test_messages_come_back_as_they_were(messages: list[StoredMessage]) -> None:
    assert decode_messages(b"".join(map(encode_message, messages))) == messages


def test_a_message_has_the_fields_of_message_decoder() -> None:
    data = encode_message(MESSAGE)

    crc = zlib.crc32(b"body") & 0x7FFFFFFF
    assert data == struct.pack(
        ">iIiiiqqiq8sq8siqi4sB1sh7s",
        len(data), 0xDAA320A7, crc, 3, 1, 7, 9, 0, 1_000, HOST, 2_000, HOST, 2, 0, 4, b"body",
        1, b"t", 7, b"TAGS\x01a\x02",
    )  # fmt: skip


def test_addresses_of_ipv6_are_marked_in_the_system_flag() -> None:
    (flag,) = struct.unpack_from(">i", encode_message(MESSAGE._replace(born_host=HOST_V6)), 36)
    assert flag == 0x10
    (flag,) = struct.unpack_from(">i", encode_message(MESSAGE._replace(store_host=HOST_V6)), 36)
    assert flag == 0x20


def test_a_message_id_is_the_store_host_and_the_physical_offset() -> None:
    assert message_id(HOST, 9) == "7F00000100002A9F0000000000000009"
    assert len(message_id(HOST_V6, 9)) == 56


@given(MESSAGES, st.data())
def test_broken_messages_are_refused(message: StoredMessage, data: st.DataObject) -> None:
    whole = encode_message(message)
    with pytest.raises(ValueError, match=r"ends|magic"):
        decode_messages(whole[: data.draw(st.integers(1, len(whole) - 1))])


@given(MEMBERS)
def test_a_batch_comes_back_as_it_was(members: list[BatchMember]) -> None:
    assert decode_batch(encode_batch(members)) == members


@given(MEMBERS, st.data())
def test_a_mutated_batch_is_read_or_refused(
    members: list[BatchMember], data: st.DataObject
) -> None:
    body = bytearray(encode_batch(members))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body))) :]

    with suppress(Refused):
        assert sum(len(one.body) for one in decode_batch(body)) < len(body)


def test_a_batch_that_cannot_be_read_is_illegal() -> None:
    with pytest.raises(Refused) as caught:
        decode_batch(b"")
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL


@given(PROPERTIES)
def test_properties_come_back_as_they_were(properties: dict[str, str]) -> None:
    encoded = encode_properties(properties).decode()
    assert decode_properties(encoded) == properties
    assert decode_properties(encoded.removesuffix("\x02")) == properties


def test_properties_without_a_name_or_a_value_are_left_out() -> None:
    assert decode_properties("a\x01\x02\x01b\x02c\x01d\x01e\x02f\x02\x02g\x01h") == {"g": "h"}
    assert decode_properties(None) == {}
