"""Entries, footers and headers come back as they were written; anything else is ``Damaged``."""

import struct
from array import array
from contextlib import suppress
from uuid import UUID

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from gateway.model import PartitionIdentity, TopicName, is_abort_marker
from gateway.testing.storage import make_batch, make_marker
from storage_adapters.formats.bodies import (
    Introduction,
    decode_bounds,
    decode_deletion,
    decode_introductions,
    encode_bounds,
    encode_deletion,
    encode_introduction,
)
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.entry import (
    BATCH_PEEK,
    FLAG_LAST,
    KIND_BOUNDS,
    check_body,
    control_flags,
    decode_entry_header,
    decode_targets,
    encode_batch_front,
    encode_entry,
)
from storage_adapters.formats.footer import (
    TRAILER_BYTES,
    Footer,
    FooterPart,
    decode_trailer,
    encode_footer,
)
from storage_adapters.formats.segment import (
    FORMAT_VERSION,
    decode_segment_header,
    encode_segment_header,
)

U32 = st.integers(0, (1 << 32) - 1)
OFFSET = st.integers(0, (1 << 62))
SEED = 0x1234_5678
IDENTITY = PartitionIdentity(7, UUID(int=3), TopicName("default", "orders"), 2)


def batch_entry(
    targets: list[tuple[int, int]], batch: bytes, seed: int = SEED, flags: int = FLAG_LAST
) -> bytes:
    leader_epoch, _, batch_crc, _ = BATCH_PEEK.unpack_from(batch, 12)
    front = encode_batch_front(
        targets, len(batch), batch_crc, leader_epoch, 5, 1_000, 77, 4, 70, flags, seed
    )
    return front + batch


@given(targets=st.lists(st.tuples(U32, OFFSET), min_size=1, max_size=5))
def test_batch_entry_round_trip(targets: list[tuple[int, int]]) -> None:
    batch = make_batch(targets[0][1], 5)
    data = batch_entry(targets, batch)

    header = decode_entry_header(data, 0, len(data), SEED)
    check_body(data, 0, header)

    assert list(decode_targets(data, 0, header.target_count)) == targets
    assert (header.sequence, header.incarnation, header.durable_sequence) == (77, 4, 70)
    assert (header.record_count, header.max_timestamp_unix_ms) == (5, 1_000)
    assert header.is_last
    assert data[header.body_at : header.size_bytes] == batch


def test_entry_bytes_are_those_of_the_document() -> None:
    """docs/formats.md, section 3, field by field."""
    batch = make_batch(300, 5, epoch=9)
    data = batch_entry([(2, 300)], batch, seed=SEED)

    fields = struct.pack(
        "<BBHIIIQIIQqiI",
        *(1, 0, 1, 1, len(batch)),
        struct.unpack_from(">I", batch, 17)[0],
        *(77, 4, 5, 70, 1_000, 9, 0),
    ) + struct.pack("<Iq", 2, 300)
    assert data[:8] == b"HGe1" + struct.pack("<I", crc32c(fields, SEED))
    assert data[8 : 8 + 68] == fields
    assert data[76:] == batch


def test_every_flipped_bit_is_seen() -> None:
    batch = make_batch(300, 5, size_bytes=80)
    data = batch_entry([(1, 300), (2, 9)], batch)

    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(Damaged):
            check_body(flipped, 0, decode_entry_header(flipped, 0, len(flipped), SEED))


@pytest.mark.parametrize(("is_abort", "flags"), [(False, 0x0002), (True, 0x0006)])
def test_flags_say_what_a_control_batch_marks(is_abort: bool, flags: int) -> None:  # noqa: FBT001
    marker = make_marker(300, is_abort=is_abort)
    assert control_flags(marker) == flags
    data = batch_entry([(1, 300), (2, 9)], marker, flags=FLAG_LAST | flags)

    header = decode_entry_header(data, 0, len(data), SEED)
    check_body(data, 0, header)

    assert (header.is_last, header.is_abort) == (True, is_abort)
    assert data[10:12] == struct.pack("<H", FLAG_LAST | flags)


@pytest.mark.parametrize(
    ("batch", "flags"),
    [
        (make_marker(300), 0x0000),
        (make_marker(300), 0x0006),
        (make_marker(300, is_abort=True), 0x0002),
        (make_batch(300, 5), 0x0002),
    ],
)
def test_flags_that_contradict_the_batch_are_damage(batch: bytes, flags: int) -> None:
    data = batch_entry([(1, 300)], batch, flags=FLAG_LAST | flags)

    with pytest.raises(Damaged, match="flags contradict"):
        check_body(data, 0, decode_entry_header(data, 0, len(data), SEED))


def test_a_marker_is_that_of_kafka() -> None:
    """The control batch of a broker of version 4.3.1, whose record is 17 bytes."""
    marker = make_marker(0, is_abort=True)
    assert len(marker) == 78
    assert marker[61:] == bytes.fromhex("2000000008000000000c00000000000000")
    assert not is_abort_marker(make_marker(0))
    assert not is_abort_marker(marker[:69])  # cut before its type ends
    assert not is_abort_marker(make_batch(0))


def test_entry_of_another_segment_is_damaged() -> None:
    data = batch_entry([(1, 0)], make_batch(0))

    with pytest.raises(Damaged, match="CRC of the entry header"):
        decode_entry_header(data, 0, len(data), SEED + 1)


@given(data=st.binary(max_size=300))
def test_any_bytes_are_damaged_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode_entry_header(b"HGe1" + data, 0, len(data) + 4, SEED)
    with pytest.raises(Damaged):
        decode_trailer(data)
    with pytest.raises(Damaged):
        decode_segment_header(data)
    for decode in (decode_bounds, decode_deletion, decode_introductions):
        with suppress(Damaged):
            list(decode(data))


def test_entry_without_targets_has_its_own_crc() -> None:
    body = encode_bounds([(1, 2, 3), (4, 5, 6)])
    data = encode_entry(
        KIND_BOUNDS,
        body,
        sequence=9,
        incarnation=2,
        durable_sequence=8,
        flags=FLAG_LAST,
        seed=SEED,
    )

    header = decode_entry_header(data, 0, len(data), SEED)
    check_body(data, 0, header)
    assert decode_bounds(data[header.body_at :]) == [(1, 2, 3), (4, 5, 6)]

    with pytest.raises(Damaged, match="CRC of the body"):
        check_body(data[:-1] + b"x", 0, header)


def test_bodies_round_trip() -> None:
    first = Introduction(IDENTITY, 5, 9)
    second = Introduction(IDENTITY._replace(topic=TopicName("n\u00e4me", "x" * 249)), 0, 0)

    body = encode_introduction(first) + encode_introduction(second)

    assert list(decode_introductions(body)) == [first, second]
    assert decode_deletion(encode_deletion([5, 1 << 31])) == [5, 1 << 31]


def test_segment_header_round_trip_and_versions() -> None:
    data = encode_segment_header(
        data_uuid=UUID(int=9),
        number=3,
        previous=2,
        first_sequence=100,
        incarnation=7,
        created_unix_ms=1_000,
    )

    header = decode_segment_header(data)
    assert header[:6] == (UUID(int=9), 3, 2, 100, 7, 1_000)

    later = bytes([FORMAT_VERSION + 1]) + data[9:]
    with pytest.raises(TooNew):
        decode_segment_header(b"HGSG" + struct.pack("<I", crc32c(later)) + later)


def footer_part(partition_id: int, bases: list[int]) -> FooterPart:
    rows = array("q")
    for base in bases:
        rows.extend((base, base * 10, 64 + base + (100 << 32), 1 + (3 << 32)))
    end = bases[-1] + 1 if bases else 0
    introduction = encode_introduction(
        Introduction(IDENTITY._replace(partition_id=partition_id), 0, end)
    )
    size_bytes = 100 * len(bases)
    return FooterPart(
        partition_id,
        0,
        end,
        is_deleted=False,
        introduction=introduction,
        size_bytes=size_bytes,
        rows=rows,
    )


def encoded(parts: list[FooterPart], entries_end: int = 1_001) -> bytes:
    return b"".join(
        encode_footer(
            parts,
            number=4,
            entries_end=entries_end,
            first_sequence=10,
            next_sequence=20,
            incarnation=6,
        )
    )


def opened(data: bytes) -> Footer:
    trailer = decode_trailer(data)
    padding = trailer.footer_at - trailer.entries_end
    footer = Footer(memoryview(data)[padding:-TRAILER_BYTES], trailer)
    footer.check()
    return footer


@given(
    table=st.dictionaries(U32, st.sets(st.integers(0, 1_000), max_size=5), max_size=8),
    entries_end=st.integers(64, 90),
)
def test_footer_round_trip(table: dict[int, set[int]], entries_end: int) -> None:
    parts = [footer_part(i, sorted(bases)) for i, bases in table.items()]

    footer = opened(encoded(parts, entries_end))

    assert footer.trailer[-5:-2] == (10, 20, 6)
    assert [part.partition_id for part in footer] == sorted(table)
    for made in parts:
        part = footer.find(made.partition_id)
        assert part is not None
        rows = footer.rows[part.first_row * 4 : (part.first_row + part.row_count) * 4]
        assert list(rows) == list(made.rows)
        assert (part.start, part.end, part.size_bytes) == (0, made.end, made.size_bytes)
        introduction = footer.introduction(part)
        assert introduction is not None
        assert introduction.identity.partition_id == made.partition_id
    assert footer.find(1 << 33) is None


def test_deleted_partition_in_a_footer_needs_no_name() -> None:
    deleted = footer_part(5, [])._replace(is_deleted=True, introduction=None)

    footer = opened(encoded([deleted, footer_part(2, [1, 2])]))

    part = footer.find(5)
    assert part is not None
    assert part.is_deleted
    assert footer.introduction(part) is None


def test_every_flipped_bit_of_a_footer_is_seen() -> None:
    data = encoded([footer_part(1, [0, 1]), footer_part(2, [5])], entries_end=1_000)

    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x40
        with pytest.raises((Damaged, TooNew)):
            opened(bytes(flipped))
