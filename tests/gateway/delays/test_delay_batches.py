"""From a run to an entry, from entries to a batch: nothing of a record is lost on the way."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.delays.batches import (
    add_header,
    encode_bodies,
    find_header,
    has_header,
    header_pairs,
    pick_values,
    record_body,
    split_bodies,
    values_of,
)
from gateway.model import HEADER_BYTES, parse_batch_header
from gateway.records.codec import (
    NO_HEADERS,
    check_crc,
    decode_batch,
    encode_headers,
    encode_runs,
)
from gateway.records.record_run import RecordRun
from gateway.records.runs import nullable

nullables = st.one_of(st.none(), st.binary(max_size=300))
headers_lists = st.lists(st.tuples(st.text(max_size=20), nullables), max_size=80)
times = st.integers(-1, 1 << 45)


@given(st.lists(st.tuples(times, nullables, nullables, headers_lists), min_size=1, max_size=9))
def test_a_batch_has_the_records_that_went_in(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    tails = [
        (timestamp, record_body(key, value, encode_headers(headers)))
        for timestamp, key, value, headers in records
    ]

    batch = encode_bodies(tails)

    header = parse_batch_header(batch)
    check_crc(batch, header)
    assert header.max_timestamp_unix_ms == max(timestamp for timestamp, *_ in records)
    assert [(one[1], one[2], one[3], list(one[4])) for one in decode_batch(batch)] == records


@given(headers_lists, st.text(max_size=20), st.binary(max_size=9))
def test_a_header_comes_at_the_end(
    headers: list[tuple[str, bytes | None]], name: str, value: bytes
) -> None:
    block = encode_headers(headers)
    stored_name = nullable(name.encode())

    longer = add_header(block, stored_name + nullable(value))

    assert longer == encode_headers([*headers, (name, value)])
    assert has_header(block, stored_name) == (name in {one for one, _ in headers})
    assert has_header(longer, stored_name)
    assert [one.decode() for one, _ in header_pairs(longer)] == [
        *[one for one, _ in headers],
        name,
    ]


def test_a_name_within_a_value_is_no_header() -> None:
    stored_name = nullable(b"deliver-at")
    block = encode_headers([("a", b"x" + stored_name), ("b", stored_name)])
    assert not has_header(block, stored_name)
    assert find_header(block, b"deliver-at") is None


def test_the_first_value_that_is_there_counts() -> None:
    block = encode_headers([("a", None), ("a", b"1"), ("a", b"2")])
    assert find_header(block, b"a") == b"1"


@given(st.lists(st.binary(min_size=1, max_size=400), min_size=1, max_size=300), st.data())
def test_values_are_found_by_offset(values: list[bytes], data: st.DataObject) -> None:
    batch = encode_runs([RecordRun(None, values, NO_HEADERS, 5)], base_offset=1_000)
    wanted = sorted(data.draw(st.sets(st.integers(0, len(values) - 1))))

    found = pick_values(batch, parse_batch_header(batch), [1_000 + one for one in wanted])

    assert list(values_of(batch)) == list(enumerate(values, start=1_000))
    assert found == [(1_000 + one, values[one]) for one in wanted]


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=400), st.integers(1_000, 70_000))
def test_pieces_fit_a_batch_or_are_one_record(sizes: list[int], bytes_max: int) -> None:
    tails = [(5, bytes(size)) for size in sizes]

    pieces = list(split_bodies(tails, bytes_max))

    assert [tail for piece in pieces for tail in piece] == tails
    for piece in pieces:
        size_bytes = HEADER_BYTES + sum(len(tail) + 32 for _, tail in piece)
        assert len(piece) == 1 or (size_bytes <= bytes_max and len(piece) <= 256)
