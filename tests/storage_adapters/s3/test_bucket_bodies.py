"""Bodies in pieces are what they would be in one; nothing of an answer is read that is too long."""

import hashlib
import io

import pytest
import urllib3
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import ManualClock
from storage_adapters.s3.bucket_bodies import (
    BYTES_PER_S_MIN,
    Body,
    is_plain_etag,
    parse_content_range,
    read_body,
)
from storage_adapters.s3.bucket_errors import BodyBroken, TooSlow

_PIECES = st.lists(st.binary(max_size=20), max_size=6)


def _md5(data: bytes) -> "hashlib._Hash":
    return hashlib.md5(data, usedforsecurity=False)


def _answer(raw: io.BufferedIOBase, length: int) -> dict[str, object]:
    body = urllib3.HTTPResponse(raw, preload_content=False)
    return {"Body": body, "ContentLength": length}


class _Drip(io.BytesIO):
    """Gives a byte at a time, each after a second."""

    def __init__(self, data: bytes, clock: ManualClock) -> None:
        super().__init__(data)
        self._clock = clock

    def read1(self, _size: int | None = -1) -> bytes:
        self._clock.advance(1_000)
        return super().read1(1)


@given(_PIECES, st.integers(1, 30), st.data())
def test_any_range_of_pieces_is_that_of_the_whole(
    pieces: list[bytes], part_bytes: int, data: st.DataObject
) -> None:
    whole = b"".join(pieces)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    block = data.draw(st.integers(1, 10))
    body = Body(pieces, part_bytes)

    file = body.open(start, end)
    read = b"".join(iter(lambda: file.read(block), b""))

    assert read == whole[start:end]
    assert file.tell() == end - start
    assert file.seek(0) == 0
    assert file.read() == whole[start:end]


@given(_PIECES, st.integers(1, 30))
def test_parts_lie_one_behind_the_other_and_make_the_etag(
    pieces: list[bytes], part_bytes: int
) -> None:
    whole = b"".join(pieces)

    body = Body(pieces, part_bytes)

    cuts = [whole[part.start : part.end] for part in body.parts]
    assert b"".join(cuts) == whole
    assert [body.md5(part) for part in body.parts] == [_md5(cut).digest() for cut in cuts]
    assert [body.crc32c(part) for part in body.parts] == [crc32c(cut) for cut in cuts]
    assert [part.number for part in body.parts] == list(range(1, len(cuts) + 1))
    if len(whole) <= part_bytes:
        assert body.etag == _md5(whole).hexdigest()
    else:
        digests = b"".join(_md5(cut).digest() for cut in cuts)
        assert body.etag == f"{_md5(digests).hexdigest()}-{len(cuts)}"


def test_a_body_of_views_of_any_form_is_counted_in_bytes() -> None:
    wide = memoryview(b"12345678").cast("I")

    body = Body([wide, bytearray(b"9")], 100)

    assert body.size_bytes == 9
    assert body.open(3, 9).read() == b"456789"


def test_nothing_of_a_longer_answer_is_read() -> None:
    raw = io.BytesIO(b"more than was asked for")

    with pytest.raises(BodyBroken, match="23 bytes came where 4 were asked for"):
        read_body(_answer(raw, 23), 4, ManualClock(), silence_ms=10)

    assert raw.closed


def test_an_answer_that_ends_early_is_broken() -> None:
    with pytest.raises(BodyBroken, match="2 of 5 bytes are missing"):
        read_body(_answer(io.BytesIO(b"abc"), 5), 5, ManualClock(), silence_ms=10)


def test_a_body_that_drips_is_given_up() -> None:
    clock = ManualClock()
    raw = _Drip(b"x" * 100, clock)

    with pytest.raises(TooSlow, match=f"slower than {BYTES_PER_S_MIN} bytes/s"):
        read_body(_answer(raw, 100), 100, clock, silence_ms=4_500)

    assert clock.monotonic_ms() == 5_000


def test_an_etag_under_a_key_of_kms_is_no_digest() -> None:
    etag = '"d41d8cd98f00b204e9800998ecf8427e"'

    assert is_plain_etag({"ETag": etag})
    assert is_plain_etag({"ETag": etag, "ServerSideEncryption": "AES256"})
    assert not is_plain_etag({"ETag": etag, "ServerSideEncryption": "aws:kms"})
    assert not is_plain_etag({"ETag": etag, "SSECustomerAlgorithm": "AES256"})
    assert not is_plain_etag({"ETag": '"something-else"'})


def test_a_range_that_is_none_is_broken() -> None:
    with pytest.raises(BodyBroken, match="Content-Range"):
        parse_content_range({"ContentRange": "bytes */100"})

    assert parse_content_range({"ContentLength": "7"}) == (0, 7, 7)
