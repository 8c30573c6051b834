"""Checks of a batch before the log takes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import (
    CorruptBatch,
    GatewayError,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompression,
    UnsupportedFormat,
)
from gateway.model import parse_batch_header
from gateway.records.checks import (
    LOOKED_AT_RECORDS_MAX,
    check_batch,
    check_keys,
    check_timestamps,
    stamp_append_time,
)
from gateway.records.codec import decode_batch
from tests.support.batches import patched, sample_batch

BYTES_MAX = 1_000_000
NOW = 1_700_000_000_000
DAY_MS = 86_400_000
COUNT_AT = 57
LAST_DELTA_AT = 23
ATTRIBUTES_AT = 21
SEQUENCE_AT = 53
PRODUCER_AT = 43


def test_a_good_batch_passes() -> None:
    batch = sample_batch(count=3)
    assert check_batch(batch, bytes_max=BYTES_MAX).record_count == 3


def test_a_flipped_bit_anywhere_under_the_crc_is_corrupt() -> None:
    for at in range(17, len(sample_batch(count=1))):
        batch = sample_batch(count=1)
        batch[at] ^= 0x10
        with pytest.raises(CorruptBatch):
            check_batch(batch, bytes_max=BYTES_MAX)


def test_every_truncation_is_refused() -> None:
    batch = sample_batch(count=2)
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch):
            check_batch(batch[:size], bytes_max=BYTES_MAX)


def test_two_batches_in_one_are_refused() -> None:
    with pytest.raises(InvalidRecord):
        check_batch(sample_batch(count=1) + sample_batch(count=1), bytes_max=BYTES_MAX)


def test_the_limit_is_inclusive() -> None:
    batch = sample_batch(count=2)
    check_batch(batch, bytes_max=len(batch))
    with pytest.raises(MessageTooLarge):
        check_batch(batch, bytes_max=len(batch) - 1)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_told_apart_from_garbage(magic: int) -> None:
    batch = sample_batch(count=1)
    batch[16] = magic
    with pytest.raises(UnsupportedFormat):
        check_batch(batch, bytes_max=BYTES_MAX)


@pytest.mark.parametrize(
    ("at", "layout", "value", "error"),
    [
        (COUNT_AT, ">i", 4, InvalidRecord),
        (COUNT_AT, ">i", 0, InvalidRecord),
        (COUNT_AT, ">i", -1, InvalidRecord),
        (LAST_DELTA_AT, ">i", 7, InvalidRecord),
        (ATTRIBUTES_AT, ">h", 5, UnsupportedCompression),
        (ATTRIBUTES_AT, ">h", 0x20, InvalidRecord),
        (ATTRIBUTES_AT, ">h", 0x10, InvalidRecord),
        (PRODUCER_AT, ">q", 5, InvalidRecord),
    ],
)
def test_headers_that_contradict_are_refused(
    at: int, layout: str, value: int, error: type[GatewayError]
) -> None:
    batch = patched(sample_batch(count=3), at, layout, value)
    with pytest.raises(error):
        check_batch(batch, bytes_max=BYTES_MAX)


def test_a_count_that_the_bytes_cannot_hold_is_refused() -> None:
    batch = patched(sample_batch(count=1), COUNT_AT, ">i", 1_000_000)
    batch = patched(batch, LAST_DELTA_AT, ">i", 999_999)
    with pytest.raises(InvalidRecord):
        check_batch(batch, bytes_max=BYTES_MAX)


def test_timestamps_are_held_to_the_topics_bounds() -> None:
    header = parse_batch_header(sample_batch(count=1, timestamp_unix_ms=NOW))
    check_timestamps(header, NOW - 5, before_ms_max=0, after_ms_max=5)
    with pytest.raises(InvalidTimestamp):
        check_timestamps(header, NOW - 6, before_ms_max=0, after_ms_max=5)
    check_timestamps(header, NOW + 9, before_ms_max=9, after_ms_max=0)
    with pytest.raises(InvalidTimestamp):
        check_timestamps(header, NOW + 10, before_ms_max=9, after_ms_max=0)


def test_a_producer_may_not_claim_log_append_time() -> None:
    batch = patched(sample_batch(count=1), ATTRIBUTES_AT, ">h", 8)
    header = check_batch(batch, bytes_max=BYTES_MAX)
    with pytest.raises(InvalidTimestamp):
        check_timestamps(header, NOW, before_ms_max=DAY_MS, after_ms_max=DAY_MS)


def test_log_append_time_is_what_every_reader_sees() -> None:
    batch = sample_batch(count=3, timestamp_unix_ms=NOW)
    stamped = stamp_append_time(batch, parse_batch_header(batch), NOW + 77)
    assert check_batch(batch, bytes_max=BYTES_MAX) == stamped
    records = decode_batch(batch, bytes_max=BYTES_MAX, records_max=10)
    assert {record.timestamp_unix_ms for record in records} == {NOW + 77}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_a_gateway_error(data: bytes) -> None:
    try:
        check_batch(bytearray(data), bytes_max=BYTES_MAX)
    except GatewayError:
        return
    assert data[16] == 2


@pytest.mark.parametrize("compression", range(5))
def test_compacted_topics_want_a_key_in_every_record(compression: int) -> None:
    keyed = sample_batch(count=3, compression=compression)
    check_keys(keyed, parse_batch_header(keyed))

    without = sample_batch(count=3, key=None, compression=compression)
    with pytest.raises(InvalidRecord, match="record 0 has no key"):
        check_keys(without, parse_batch_header(without))


def test_keys_are_looked_for_within_bounds() -> None:
    many = patched(sample_batch(count=1), COUNT_AT, ">i", LOOKED_AT_RECORDS_MAX + 1)
    with pytest.raises(MessageTooLarge, match="at most 100000"):
        check_keys(many, parse_batch_header(many))

    huge = sample_batch(count=17, value=bytes(1 << 20), compression=4)
    with pytest.raises(MessageTooLarge, match="16777216"):
        check_keys(huge, parse_batch_header(huge), bytes_max=1 << 20)
    check_keys(huge, parse_batch_header(huge), bytes_max=18 << 20)

    garbled = patched(sample_batch(count=2), COUNT_AT, ">i", 1)
    with pytest.raises(CorruptBatch):
        check_keys(garbled, parse_batch_header(garbled))
