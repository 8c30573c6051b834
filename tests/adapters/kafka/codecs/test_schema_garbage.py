"""Malformed requests of every API of the schema codec: a message or a ``PeerError``."""

import struct
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.kafka.codec import ELEMENTS_MAX
from adapters.kafka.codecs.schema_codec import _MESSAGES, decode_request
from adapters.kafka.handlers import APIS
from gateway.errors import PeerError
from tests.adapters.kafka.codecs import kio_codec
from tests.support.examples import examples

SERVED = [(key, version) for key in (3, *_MESSAGES) for version in APIS[key].versions]


@cache
def body_of(api_key: int, version: int) -> bytes:
    """Return a request with a value in every field; cached, as building all is slow."""
    kind = kio_codec.request_class(api_key, version)
    return kio_codec.encode(kio_codec.sample(kind, with_nulls=False))


def decodes_or_refuses(api_key: int, version: int, body: bytes) -> bool:
    """Decode a request; errors other than ``PeerError`` fail the test."""
    try:
        decode_request(api_key, version, body)
    except PeerError:
        return False
    return True


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_every_cut_is_refused(api_key: int, version: int) -> None:
    body = body_of(api_key, version)

    assert decodes_or_refuses(api_key, version, body)
    assert not any(decodes_or_refuses(api_key, version, body[:end]) for end in range(len(body)))


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_every_byte_may_be_anything(api_key: int, version: int) -> None:
    body = body_of(api_key, version)

    for index in range(len(body)):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            mutated = body[:index] + bytes([byte]) + body[index + 1 :]
            decodes_or_refuses(api_key, version, mutated)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_random_edits_decode_or_are_refused(data: st.DataObject) -> None:
    api_key, version = data.draw(st.sampled_from(SERVED))
    body = bytearray(body_of(api_key, version))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(body)))
        size = data.draw(st.integers(0, 8))
        body[start : start + size] = data.draw(st.binary(max_size=12))

    decodes_or_refuses(api_key, version, bytes(body))


@settings(max_examples=examples(200), deadline=None)
@given(pair=st.sampled_from(SERVED), body=st.binary(max_size=200))
def test_random_bytes_decode_or_are_refused(pair: tuple[int, int], body: bytes) -> None:
    decodes_or_refuses(*pair, body)


def test_a_count_above_what_remains_is_refused_before_anything_is_built() -> None:
    body = struct.pack(">i", 2**31 - 1) + bytes(64)

    with pytest.raises(PeerError, match="2147483647 elements in 64 bytes"):
        decode_request(20, 1, body)


def test_a_request_of_tiny_elements_is_refused_above_the_bound() -> None:
    empty_name = struct.pack(">h", 0)
    count = ELEMENTS_MAX + 1

    with pytest.raises(PeerError, match="elements in one request"):
        decode_request(20, 1, struct.pack(">i", count) + empty_name * count + bytes(4))


def test_elements_of_nested_arrays_count_together() -> None:
    names = b"".join((struct.pack(">h", 1), b"t", struct.pack(">i", ELEMENTS_MAX - 1)))
    partitions = bytes(12) * (ELEMENTS_MAX - 1)
    topics = struct.pack(">iii", -1, 2, 0)[:8]

    with pytest.raises(PeerError, match="elements in one request"):
        decode_request(2, 1, topics + (names + partitions) * 2)


def test_a_varint_without_an_end_is_refused() -> None:
    with pytest.raises(PeerError, match="varint"):
        decode_request(20, 6, b"\xff" * 4096)


def test_unknown_tagged_fields_are_skipped() -> None:
    body = b"\x01" + struct.pack(">i", 1234) + b"\x02\x05\x03abc\x09\x00"

    assert decode_request(20, 6, body).timeout_ms == 1234


def test_null_is_refused_where_the_schema_does_not_allow_it() -> None:
    with pytest.raises(PeerError):
        decode_request(20, 1, struct.pack(">ihi", 1, -1, 1000))


@pytest.mark.parametrize(("api_key", "version"), [(99, 0), (20, 7), (20, 0), (-1, 0), (3, 14)])
def test_what_is_not_known_is_refused(api_key: int, version: int) -> None:
    with pytest.raises(PeerError):
        decode_request(api_key, version, b"")
