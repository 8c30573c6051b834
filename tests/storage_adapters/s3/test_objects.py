"""Objects of appends: what is put in is found again, by footer, by index and by scan."""

from uuid import UUID

import pytest

from gateway.model import HEADER_BYTES, Buffer, PartitionIdentity, TopicName
from gateway.testing.storage import make_entry
from storage_adapters.formats.bodies import Introduction, encode_introduction
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.entry import check_body, decode_entry_header
from storage_adapters.formats.footer import (
    LOW_32,
    ROW_STRIDE,
    TRAILER_BYTES,
    Footer,
    decode_trailer,
)
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES, decode_segment_header
from storage_adapters.s3.objects import (
    Appends,
    ObjectHeader,
    Part,
    build_log_object,
    headers_of,
)
from storage_adapters.s3.state import KIND_LOG

_PLACE = ObjectHeader(UUID(int=7), 42, 3, 1_000)


def _part(partition_id: int, start: int, end: int) -> Part:
    identity = PartitionIdentity(
        partition_id, UUID(int=partition_id), TopicName("default", f"t{partition_id}"), 0
    )
    return Part(
        start,
        end,
        is_deleted=False,
        introduction=encode_introduction(Introduction(identity, start, end)),
    )


def _appends() -> Appends:
    entries = [
        make_entry((9, 100), 2, timestamp_unix_ms=5),
        make_entry((4, 0), 1, timestamp_unix_ms=9, epoch=2),
        make_entry([(4, 1), (9, 102)], 3, timestamp_unix_ms=7, epoch=3),
        make_entry((4, 4), 1, timestamp_unix_ms=1, epoch=3),
    ]
    return Appends(entries, frozenset({0, 2, 3}), 50)


_PARTS = {9: _part(9, 90, 105), 4: _part(4, 0, 5)}


def test_large_batches_are_not_copied() -> None:
    large, small = make_entry((4, 1), size_bytes=20_000), make_entry((4, 0), size_bytes=10_000)
    parts = {4: _part(4, 0, 2)}

    built = build_log_object(_PLACE, Appends([small, large], frozenset({0, 1}), 50), parts)

    assert [piece is large.batch for piece in built.body] == [False, True, False]
    assert built.size_bytes == len(built.data)
    assert bytes(large.batch) in built.data
    assert [found.header for found in headers_of(built.data, 50)] == [
        bytes(entry.batch[:HEADER_BYTES]) for entry in (small, large)
    ]


def test_little_of_a_request_does_not_hold_all_of_it() -> None:
    data = bytes(make_entry((4, 0), size_bytes=20_000).batch)
    parts = {4: _part(4, 0, 2)}

    def built_of(request: bytes, places: list[int]) -> list[Buffer]:
        entries = [
            make_entry((4, offset))._replace(batch=memoryview(request)[at : at + len(data)])
            for offset, at in enumerate(places)
        ]
        return build_log_object(_PLACE, Appends(entries, frozenset({0}), 50), parts).body

    mostly = built_of(data + data + b"\0" * 40_000, [0, 20_000])
    hardly = built_of(data + data + b"\0" * 60_000, [20_000])

    assert [type(piece) for piece in mostly if len(piece) == len(data)] == [memoryview] * 2
    assert [type(piece) for piece in hardly if len(piece) == len(data)] == [bytes]
    assert data in b"".join(hardly)


def test_entries_are_sorted_by_partition_and_intact() -> None:
    data = memoryview(build_log_object(_PLACE, _appends(), _PARTS).data)

    header, trailer = decode_segment_header(data), decode_trailer(data)
    assert (header.kind, header.number, header.incarnation) == (KIND_LOG, 42, 3)
    assert (trailer.first_sequence, trailer.next_sequence) == (50, 54)
    at, sequences, last = SEGMENT_HEADER_BYTES, [], []
    while at < trailer.entries_end:
        entry = decode_entry_header(data, at, trailer.entries_end, header.seed)
        check_body(data, at, entry)
        sequences.append(entry.sequence)
        last.append(entry.is_last)
        at += entry.size_bytes
    assert sequences == [51, 52, 53, 50]
    assert last == [False, True, True, True]


def test_footer_and_index_say_the_same() -> None:
    built = build_log_object(_PLACE, _appends(), _PARTS)
    data = memoryview(built.data)
    trailer = decode_trailer(data)

    footer = Footer(data[trailer.footer_at : len(data) - TRAILER_BYTES], trailer)

    footer.check()
    assert list(footer.rows) == list(built.rows)
    for partition_id, extent in built.parts:
        part = footer.find(partition_id)
        assert part is not None
        assert (part.first_row, part.row_count) == (extent.first_row, extent.row_count)
        assert part.size_bytes == extent.size_bytes
        assert part.max_timestamp_unix_ms == extent.max_timestamp_unix_ms
    of_four, of_nine = (extent for _, extent in built.parts)
    assert (of_four.first, of_four.end, of_nine.first, of_nine.end) == (0, 5, 100, 105)
    assert of_four.epochs == ((2, 0), (3, 1))


def test_a_batch_for_two_partitions_is_stored_once() -> None:
    built = build_log_object(_PLACE, _appends(), _PARTS)

    places = [built.rows[row + 2] for row in range(0, len(built.rows), ROW_STRIDE)]

    assert len(places) == 5
    assert len(set(places)) == 4
    shared = next(place for place in places if places.count(place) == 2)
    position = shared & LOW_32
    batch = _appends().entries[2].batch
    assert built.data[position : position + (shared >> 32)] == batch


def test_a_partition_of_which_only_bounds_are_told() -> None:
    parts = {**_PARTS, 11: Part(8, 8, is_deleted=True, introduction=None), 12: _part(12, 6, 9)}

    built = build_log_object(_PLACE, _appends(), parts)

    data = memoryview(built.data)
    trailer = decode_trailer(data)
    footer = Footer(data[trailer.footer_at : len(data) - TRAILER_BYTES], trailer)
    deleted, moved = footer.find(11), footer.find(12)
    assert deleted is not None
    assert deleted.is_deleted
    assert moved is not None
    assert (moved.start, moved.end, moved.row_count) == (6, 9, 0)
    assert [part.partition_id for part in built.parts] == [4, 9]


def test_scan_is_in_order_of_sequence() -> None:
    data = build_log_object(_PLACE, _appends(), _PARTS).data

    found = headers_of(data, 51)

    assert [header.sequence for header in found] == [51, 52, 53]
    assert [header.targets for header in found] == [
        one.targets for one in _appends().entries[1:]
    ]
    assert [header.header for header in found] == [
        bytes(one.batch[:61]) for one in _appends().entries[1:]
    ]


def test_a_flipped_bit_in_an_entry_is_damage() -> None:
    data = bytearray(build_log_object(_PLACE, _appends(), _PARTS).data)
    data[SEGMENT_HEADER_BYTES + 20] ^= 4

    with pytest.raises(Damaged):
        headers_of(data, 0)
