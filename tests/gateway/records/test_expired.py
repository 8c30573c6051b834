"""Kafka's readers do not get what has expired, and go on behind it."""

import struct

import pytest

from gateway.clock import ManualClock
from gateway.model import HEADER_BYTES, Buffer, parse_batch_header
from gateway.records.codec import decode_batch, encode_batch
from gateway.records.compression import GZIP, ZSTD, compress
from gateway.records.expired import without_expired
from tests.support.batches import patched

NOW_UNIX_MS = 1_700_000_000_000
NOW = ManualClock(NOW_UNIX_MS)


def batch_of(*deadlines: bytes | None, codec: int = 0) -> bytearray:
    records = [
        (
            NOW_UNIX_MS,
            b"k",
            b"%d" % number,
            [] if deadline is None else [("a", b"1"), ("expires-at", deadline)],
        )
        for number, deadline in enumerate(deadlines)
    ]
    batch = encode_batch(
        records, base_offset=7, producer_id=3, producer_epoch=0, base_sequence=5
    )
    if not codec:
        return batch
    packed = batch[:HEADER_BYTES] + compress(codec, bytes(batch[HEADER_BYTES:]))
    struct.pack_into(">i", packed, 8, len(packed) - 12)
    return patched(packed, 21, ">h", codec)


def seen(batch: Buffer) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in decode_batch(batch)]


@pytest.mark.parametrize("codec", [0, GZIP, ZSTD])
def test_what_has_expired_is_left_out(codec: int) -> None:
    deadlines = [b"%d" % (NOW_UNIX_MS + ms) for ms in (-1, 0, 1)]
    batch = batch_of(None, *deadlines, codec=codec)

    [found] = without_expired([batch], NOW)

    assert seen(found) == [(7, b"0"), (10, b"3")]
    header = parse_batch_header(found)
    assert header[9:12] == (3, 0, 5)
    assert header.last_offset == 10


def test_a_batch_of_which_all_has_expired_says_where_to_go_on() -> None:
    [found] = without_expired([batch_of(b"1", b"2")], NOW)

    assert seen(found) == []
    assert parse_batch_header(found).last_offset == 8


@pytest.mark.parametrize("deadline", [b"", b"soon", b"-1", b"9" * 19, b"0"])
def test_what_is_no_time_never_expires(deadline: bytes) -> None:
    batch = batch_of(deadline)
    assert without_expired([batch], NOW) == [batch]


def test_what_cannot_be_decoded_goes_out_as_it_is() -> None:
    batch = batch_of(b"1")
    batch[HEADER_BYTES] += 2
    assert without_expired([batch], NOW) == [batch]


def test_a_batch_that_cannot_be_written_again_stays_as_it_is() -> None:
    """Its records are more than 64 bits of milliseconds apart, or beyond 64 bits."""
    expired = [("expires-at", b"1")]
    low, high = -(1 << 62), (1 << 62) - 1
    batch = encode_batch(
        [(low, None, b"a", expired), (high, None, b"b", ()), (low, None, b"c", ())]
    )
    shifted = patched(batch, 27, ">q", high)

    assert without_expired([batch, shifted], NOW)[1] is shifted


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_a_step_of_the_clock_moves_no_expiry(step_ms: int) -> None:
    clock = ManualClock(NOW_UNIX_MS)
    batch = batch_of(b"%d" % clock.deadline_unix_ms(10_000))
    clock.step_unix(step_ms)
    clock.advance(9_999)
    assert without_expired([batch], clock) == [batch]
    clock.advance(1)
    assert seen(without_expired([batch], clock)[0]) == []
