"""Merged objects: every batch of the inputs, once, where footer and index say."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model import parse_batch_header
from gateway.testing.storage import make_batch, make_entry
from storage_adapters.formats.footer import LOW_32, NO_TIMESTAMP, ROW_STRIDE
from storage_adapters.formats.segment import decode_segment_header
from storage_adapters.s3.merged_object import DamagedObject, open_source
from storage_adapters.s3.state import KIND_SETTLED, Extent
from tests.storage_adapters.s3.merge_catalog import MergeCatalog, footer_of
from tests.support.examples import examples


def _batches(world: MergeCatalog, partition_id: int) -> list[bytes]:
    """Return a partition's batches as readers get them, by what the catalog says."""
    found = []
    for extent in world.catalog.partition(partition_id).extents:
        data, rows = world.data[extent.number], footer_of(world.data[extent.number]).rows
        for row in range(extent.first_row, extent.first_row + extent.row_count):
            base_offset, _, place, _ = rows[row * ROW_STRIDE : (row + 1) * ROW_STRIDE]
            found.append(_stamped(data[place & LOW_32 :][: place >> 32], base_offset))
    return found


def _stamped(batch: bytes, base_offset: int) -> bytes:
    return struct.pack(">q", base_offset) + batch[8:]


def test_batches_of_a_partition_lie_one_behind_the_other() -> None:
    world = MergeCatalog()
    one = world.log([make_entry((2, 0), 3), make_entry((1, 0), 2, timestamp_unix_ms=7_000)])
    two = world.log([make_entry((1, 2), 2), make_entry((2, 3), 1, epoch=2)])

    (number,) = world.merge([one, two])

    data = memoryview(world.data[number])
    header = decode_segment_header(data)
    assert (header.kind, header.number, header.first_sequence) == (KIND_SETTLED, number, 1)
    footer = footer_of(data)
    footer.check()
    assert (footer.trailer.first_sequence, footer.trailer.next_sequence) == (1, 5)
    assert footer.trailer.entries_end == 64 + 400
    assert bytes(data[64:464]) == b"".join(
        [
            make_batch(0, 2, timestamp_unix_ms=7_000),
            make_batch(2, 2),
            make_batch(0, 3),
            make_batch(3, 1, epoch=2),
        ]
    )
    extents = [world.catalog.partition(i).extents for i in (1, 2)]
    assert extents[0] == [Extent(0, 4, number, 0, 2, 200, 7_000, ((1, 0),))]
    assert extents[1] == [Extent(0, 4, number, 2, 2, 200, 1_000, ((1, 0), (2, 3)))]
    assert world.catalog.objects[number].partition_ids == {1, 2}
    assert world.catalog.objects[number].size_bytes == len(data)


def test_highest_timestamps_run_on() -> None:
    world = MergeCatalog()
    inputs = [
        world.log([make_entry((1, n), timestamp_unix_ms=time)])
        for n, time in enumerate([3_000, 9_000, 5_000])
    ]
    (number,) = world.merge(inputs)
    rows = footer_of(world.data[number]).rows
    assert list(rows[1::ROW_STRIDE]) == [3_000, 9_000, 9_000]


def test_base_offset_is_filled_in_for_every_partition() -> None:
    world = MergeCatalog()
    one = world.log([make_entry((1, 0), 5), make_entry([(2, 0), (1, 5)], 3)])
    two = world.log([make_entry([(1, 8), (2, 3)], 1)])

    world.merge([one, two])

    assert [parse_batch_header(b).base_offset for b in _batches(world, 1)] == [0, 5, 8]
    assert [parse_batch_header(b).base_offset for b in _batches(world, 2)] == [0, 3]
    assert _batches(world, 1)[1] == _stamped(_batches(world, 2)[0], 5)


def test_a_batch_for_many_partitions_is_merged_once() -> None:
    world = MergeCatalog()
    ends = dict.fromkeys(range(1, 101), 0)
    inputs = []
    for size_bytes in (2_000, 3_000, 4_000):
        entry = make_entry(list(ends.items()), 2, size_bytes=size_bytes)
        alone = make_entry((1, ends[1] + 2), 1, size_bytes=500)
        inputs.append(world.log([entry, alone]))
        ends = {one: end + 2 + (one == 1) for one, end in ends.items()}

    made = world.merge(inputs, own_bytes_min=5_000)
    (again,) = world.merge([world.catalog.objects[made[0]]], own_bytes_min=5_000)

    assert len(made) == 1
    trailer = footer_of(world.data[again]).trailer
    assert trailer.entries_end == 64 + 9_000 + 3 * 500
    assert trailer.repeated_bytes == 99 * 9_000
    for one, end in ends.items():
        bases = [parse_batch_header(batch).base_offset for batch in _batches(world, one)]
        assert bases == ([0, 2, 3, 5, 6, 8] if one == 1 else [0, 2, 4]), end


def test_batches_below_the_log_start_are_left_out() -> None:
    world = MergeCatalog()
    one = world.log([make_entry((1, n * 2), 2) for n in range(3)])
    two = world.log([make_entry((1, 6), 2), make_entry((2, 0))])
    world.catalog.partition(1).start = 3
    world.catalog.partition(2).start = 1

    (number,) = world.merge([one, two])

    # The batch with offset 3 begins at 2.
    (extent,) = world.catalog.partition(1).extents
    assert (extent.first, extent.end, extent.row_count) == (2, 8, 3)
    assert world.catalog.partition(2).extents == []
    footer = footer_of(world.data[number])
    of_one, of_two = footer.find(1), footer.find(2)
    assert of_one is not None
    assert of_two is not None
    assert (of_one.start, of_one.end) == (2, 8)
    told = footer.introduction(of_one)
    assert told is not None
    assert (told.start, told.end) == (3, 8)
    # What is below is noted, so that the offsets are never given again.
    assert (of_two.start, of_two.end, of_two.row_count) == (1, 1, 0)
    assert footer.introduction(of_two) is not None


def test_holes_are_answered_for() -> None:
    world = MergeCatalog()
    own = world.merge([world.log([make_entry((1, 0), 9)])], own_bytes_min=1)[0]
    stored, data = world.catalog.objects[own], world.data[own]
    source = open_source(stored, data)
    assert source.footer.rows[0] == 0
    # As after compaction: the object answers for offsets of which nothing is left.
    world.catalog.partition(1).extents = [
        Extent(0, 9, own, 0, 1, 100, 1_000, ((1, 0),)),
    ]
    later = world.log([make_entry((1, 9))])
    world.catalog.partition(1).start = 0
    numbers = world.merge([stored, later])
    (extent,) = world.catalog.partition(1).extents
    assert (extent.first, extent.end, extent.number) == (0, 10, numbers[0])


def test_deleted_partitions_are_noted_without_batches() -> None:
    world = MergeCatalog()
    one = world.log([make_entry((1, 0)), make_entry((2, 0))])
    world.catalog.partition(1).is_deleted = True

    (number,) = world.merge([one])

    part = footer_of(world.data[number]).find(1)
    assert part is not None
    assert (part.is_deleted, part.row_count) == (True, 0)
    assert world.catalog.objects[number].partition_ids == {2}


def test_a_round_of_which_nothing_is_left_still_stands_for_its_inputs() -> None:
    world = MergeCatalog()
    one = world.log([make_entry((1, 0))])
    world.catalog.partition(1).start = 1

    (number,) = world.merge([one])

    footer = footer_of(world.data[number])
    assert (footer.trailer.first_sequence, footer.trailer.next_sequence) == (1, 2)
    assert footer.trailer.max_timestamp_unix_ms == NO_TIMESTAMP
    assert world.catalog.objects[number].partition_ids == frozenset()


@pytest.mark.parametrize("at", [64 + 76 + 30, 64 + 76 + 8, -1, 20, -150])
def test_a_flipped_bit_is_damage_of_that_object(at: int) -> None:
    world = MergeCatalog()
    stored = world.log([make_entry((1, 0))])
    data = bytearray(world.data[stored.number])
    data[at] ^= 0x10
    world.data[stored.number] = bytes(data)

    with pytest.raises(DamagedObject) as caught:
        world.build([stored])

    assert caught.value.number == stored.number


def test_an_object_of_another_number_is_damage() -> None:
    world = MergeCatalog()
    one, two = (world.log([make_entry((1, n))]) for n in range(2))
    with pytest.raises(DamagedObject, match="object 1"):
        open_source(two, world.data[one.number])


_APPENDS = st.lists(
    st.lists(
        st.tuples(st.sets(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 3)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(60, in_soak=20_000), deadline=None)
@given(_APPENDS, st.lists(st.integers(2, 5), max_size=6), st.integers(50, 600))
def test_merging_again_and_again_loses_nothing(
    objects: list[list[tuple[set[int], int]]], counts: list[int], own_bytes_min: int
) -> None:
    world, ends = MergeCatalog(), dict.fromkeys(range(1, 5), 0)
    expected: dict[int, list[bytes]] = {i: [] for i in ends}
    for appends in objects:
        entries = []
        for ids, count in appends:
            targets = [(i, ends[i]) for i in sorted(ids)]
            entries.append(make_entry(targets, count))
            for i, offset in targets:
                expected[i].append(_stamped(make_batch(targets[0][1], count), offset))
                ends[i] += count
        world.log(entries)
    for count in counts:
        live = sorted(
            (o for o in world.catalog.objects.values() if o.first_sequence < o.next_sequence),
            key=lambda o: o.first_sequence,
        )
        if len(live) >= count:
            world.merge(live[:count], own_bytes_min)

    for partition_id, batches in expected.items():
        found = [
            _stamped(batch, base)
            for batch, base in zip(
                _batches(world, partition_id), _bases(world, partition_id), strict=True
            )
        ]
        assert found == batches


def _bases(world: MergeCatalog, partition_id: int) -> list[int]:
    return [
        footer_of(world.data[extent.number]).rows[row * ROW_STRIDE]
        for extent in world.catalog.partition(partition_id).extents
        for row in range(extent.first_row, extent.first_row + extent.row_count)
    ]
