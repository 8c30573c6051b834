"""One record of each of many publishers: the same bytes as runs of one, and the same records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.coalescer import BATCH_RECORDS_MAX
from gateway.records.codec import NO_HEADERS, decode_batch, encode_headers, encode_runs
from gateway.records.record_run import RecordRun
from gateway.records.singles import RecordFrame, SingleRecords

NOW_UNIX_MS = 1_700_000_000_000
BLOCKS = [NO_HEADERS, encode_headers([("mqtt.client", b"c"), ("empty", b""), ("null", None)])]
RECORDS = st.lists(
    st.tuples(st.binary(max_size=80), st.sampled_from(BLOCKS), st.binary(max_size=200)),
    min_size=1,
    max_size=200,
)


def singles(
    records: list[tuple[bytes, bytes, bytes]], timestamp_unix_ms: int = NOW_UNIX_MS
) -> SingleRecords:
    frames = [RecordFrame(key, block, len(value)) for key, block, value in records]
    return SingleRecords(frames, [value for _, _, value in records], timestamp_unix_ms)


def runs_of_one(
    records: list[tuple[bytes, bytes, bytes]], timestamp_unix_ms: int = NOW_UNIX_MS
) -> list[RecordRun]:
    return [RecordRun(key, (value,), block, timestamp_unix_ms) for key, block, value in records]


@given(RECORDS, st.sampled_from([0, 1, 63, 64, 70, 2_047, 2_048, 8_200]), st.integers(-5, 5))
def test_they_are_encoded_as_runs_of_one(
    records: list[tuple[bytes, bytes, bytes]], before: int, later_ms: int
) -> None:
    first = [RecordRun(b"k", (b"v",) * before, NO_HEADERS, NOW_UNIX_MS)] if before else []
    then_unix_ms = NOW_UNIX_MS + later_ms
    wanted = encode_runs([*first, *runs_of_one(records, then_unix_ms)])
    assert encode_runs([*first, singles(records, then_unix_ms)]) == wanted


@given(RECORDS)
def test_a_batch_is_not_larger_than_they_say(
    records: list[tuple[bytes, bytes, bytes]],
) -> None:
    run = singles(records)
    assert len(encode_runs([run])) - 61 <= run.size_bytes
    assert run.largest_bytes == max(one.size_bytes for one in run.frames)


@pytest.mark.parametrize(("records_max", "bytes_max"), [(3, 10_000), (100, 200), (100, 1)])
def test_pieces_are_within_the_bounds_and_hold_all(records_max: int, bytes_max: int) -> None:
    records = [(b"k%d" % number, NO_HEADERS, b"v" * number) for number in range(40)]
    run = singles(records)
    pieces = run.pieces(records_max=records_max, bytes_max=bytes_max)
    assert all(len(piece.values) <= records_max for piece in pieces)
    assert all(piece.size_bytes <= bytes_max or len(piece.values) == 1 for piece in pieces)
    found = [record for piece in pieces for record in decode_batch(encode_runs([piece]))]
    assert [(one.key, one.value) for one in found] == [
        (key, value) for key, _, value in records
    ]
    assert len(run.pieces(records_max=BATCH_RECORDS_MAX, bytes_max=10_000)) == 1
