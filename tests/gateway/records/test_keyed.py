"""Records with keys of their own and headers in common: the same bytes as runs of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.records.codec import NO_HEADERS, decode_batch, encode_headers, encode_runs
from gateway.records.keyed import KeyedRecords
from gateway.records.record_run import RecordRun

NOW_UNIX_MS = 1_700_000_000_000
HEADERS = st.sampled_from(
    [NO_HEADERS, encode_headers([("mqtt.client", b"c"), ("empty", b""), ("null", None)])]
)
RECORDS = st.lists(
    st.tuples(
        st.binary(max_size=80) | st.just(bytes(3_000)),
        st.binary(max_size=200) | st.just(bytes(2_040)),
    ),
    min_size=1,
    max_size=200,
)


def keyed(
    records: list[tuple[bytes, bytes]], headers: bytes, timestamp_unix_ms: int = NOW_UNIX_MS
) -> KeyedRecords:
    keys, values = zip(*records, strict=True)
    return KeyedRecords(keys, values, headers, timestamp_unix_ms)


@given(
    RECORDS, HEADERS, st.sampled_from([0, 1, 63, 64, 2_047, 2_048, 8_200]), st.integers(-5, 5)
)
def test_they_are_encoded_as_runs_of_one(
    records: list[tuple[bytes, bytes]], headers: bytes, before: int, later_ms: int
) -> None:
    first = [RecordRun(b"k", (b"v",) * before, NO_HEADERS, NOW_UNIX_MS)] if before else []
    then_unix_ms = NOW_UNIX_MS + later_ms
    singly = [RecordRun(key, (value,), headers, then_unix_ms) for key, value in records]

    encoded = encode_runs([*first, keyed(records, headers, then_unix_ms)])

    assert encoded == encode_runs([*first, *singly])


@given(RECORDS, HEADERS)
def test_a_batch_is_not_larger_than_they_say(
    records: list[tuple[bytes, bytes]], headers: bytes
) -> None:
    run = keyed(records, headers)
    assert len(encode_runs([run])) - 61 <= run.size_bytes
    sizes = [keyed([record], headers).size_bytes for record in records]
    assert sum(sizes) == run.size_bytes
    assert run.largest_bytes == max(sizes)


@pytest.mark.parametrize(("records_max", "bytes_max"), [(3, 10_000), (100, 200), (100, 1)])
def test_pieces_are_within_the_bounds_and_hold_all(records_max: int, bytes_max: int) -> None:
    records = [(b"k%d" % number, b"v" * number) for number in range(40)]
    run = keyed(records, NO_HEADERS)
    pieces = run.pieces(records_max=records_max, bytes_max=bytes_max)
    assert all(len(piece.values) <= records_max for piece in pieces)
    assert all(piece.size_bytes <= bytes_max or len(piece.values) == 1 for piece in pieces)
    found = [record for piece in pieces for record in decode_batch(encode_runs([piece]))]
    assert [(one.key, one.value) for one in found] == records
