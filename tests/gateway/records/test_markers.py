"""Commit and abort markers: the bytes of Apache Kafka."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from gateway.errors import CorruptBatch
from gateway.model import is_abort_marker, parse_batch_header
from gateway.records.codec import check_crc
from gateway.records.markers import MARKER_BYTES, Marker, decode_marker, encode_marker

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

MARKERS = st.builds(
    Marker,
    producer_id=st.integers(0, INT64_MAX),
    producer_epoch=st.integers(0, INT16_MAX),
    is_commit=st.booleans(),
    coordinator_epoch=st.integers(-1, INT32_MAX),
)


@pytest.mark.parametrize(("is_commit", "kind"), [(False, "0000"), (True, "0001")])
def test_a_marker_has_the_bytes_of_kafka(is_commit: bool, kind: str) -> None:  # noqa: FBT001
    """``EndTransactionMarker``: all but the CRC, which covers what follows it."""
    marker = Marker(1_000, 5, is_commit, coordinator_epoch=2)

    found = encode_marker(marker, 1_700_000_000_000)

    assert len(found) == 78
    assert found[:17] == bytes.fromhex("00000000 00000000 00000042 00000000 02")
    assert found[21:] == bytes.fromhex(
        "0030 00000000 0000018bcfe56800 0000018bcfe56800 00000000000003e8 0005 ffffffff 00000001"
        f"20 00 00 00 08 0000 {kind} 0c 0000 00000002 00"
    )


@given(marker=MARKERS)
def test_a_marker_comes_back_and_is_a_batch_of_one_offset(marker: Marker) -> None:
    found = encode_marker(marker, 1_700_000_000_000)

    header = parse_batch_header(found)
    check_crc(found, header)
    assert decode_marker(found) == marker
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.last_offset_delta, header.record_count, header.base_sequence) == (0, 1, -1)
    assert is_abort_marker(found) is not marker.is_commit


def test_another_codec_reads_a_marker() -> None:
    batch = encode_marker(Marker(7, 1, is_commit=False), 1_700_000_000_000)
    read = MemoryRecords(bytes(batch)).next_batch()
    assert read is not None
    assert read.is_control_batch
    [record] = list(read)
    assert (record.key, record.value) == (bytes(4), bytes(6))


@pytest.mark.parametrize("at", [MARKER_BYTES - 1, 22, 68])
def test_what_is_no_marker_is_refused(at: int) -> None:
    batch = encode_marker(Marker(7, 1, is_commit=False), 1)
    if at == MARKER_BYTES - 1:
        del batch[at]
    else:
        batch[at] = 0 if at == 22 else 9
    with pytest.raises(CorruptBatch):
        decode_marker(batch)
