"""The manifest's bytes, and which files are worth merging."""

from uuid import UUID

import pytest
from crc32c import crc32c

from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.manifest import (
    SHARED,
    FileRecord,
    Manifest,
    decode_manifest,
    encode_manifest,
)
from storage_adapters.segment_log.merging import MergeLimits, run_to_merge

MANIFEST = Manifest(
    UUID(int=7),
    generation=9,
    next_sequence=1 << 40,
    wal_upto=12,
    incarnation=3,
    directory=5,
    next_number=8,
    files=(
        FileRecord(3, SHARED, 1 << 33, 100_000, 0xDEADBEEF, frozenset({4, 2, 99})),
        FileRecord(4, 17, 500, 1, 1),
        FileRecord(5, SHARED, 64, 0, 2, frozenset({1})),
    ),
)
LIMITS = MergeLimits(bytes_max=1_000, rows_max=50)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST
    assert decode_manifest(encode_manifest(Manifest(UUID(int=1)))) == Manifest(UUID(int=1))


def test_every_flipped_byte_is_found() -> None:
    data = encode_manifest(MANIFEST)
    for index in range(len(data)):
        bad = bytearray(data)
        bad[index] ^= 0x10
        with pytest.raises(Damaged):
            decode_manifest(bad)
    for end in range(len(data)):
        with pytest.raises(Damaged):
            decode_manifest(data[:end])


def test_a_later_version_is_told() -> None:
    data = bytearray(encode_manifest(MANIFEST))
    data[8] = 2
    data[4:8] = crc32c(bytes(data[8:])).to_bytes(4, "little")
    with pytest.raises(TooNew, match="version 2"):
        decode_manifest(data)


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ([100] * 3, None),
        ([100] * 4, range(4)),
        ([100] * 20, range(10)),  # As many as fit.
        ([900, 100, 100, 100, 100], range(1, 5)),  # The large one has been merged already.
        ([2_000, 10, 10, 10], None),
        ([10, 500, 10, 10], None),
    ],
)
def test_neighbours_alike_in_size_are_merged(sizes: list[int], found: range | None) -> None:
    assert run_to_merge([(size, 1) for size in sizes], LIMITS) == found


def test_rows_bound_a_merge_too() -> None:
    assert run_to_merge([(10, 20)] * 6, LIMITS) is None
    assert run_to_merge([(10, 12)] * 6, LIMITS) == range(4)
