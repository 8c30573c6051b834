"""The journal's entries: their bytes, and what is none."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.queue import journal, journal_layout, journal_parser
from features.queue.lane import Lane
from features.queue.model import BY_TIME, Order, Policy, Run
from features.queue.retrying import DeliveryEnd
from gateway.errors import CorruptBatch
from tests.features.queue.lanes import taking

OFFSETS = st.sets(st.integers(0, 1 << 60), max_size=30)


def entries() -> list[bytes]:
    """Return one of each kind."""
    lane = Lane(Policy(Order.KEY), 0)
    lane.feed([Run(0, 3, b"key"), Run(4, 9, None)], 1)
    _, took = taking(lane, 8, holder=BY_TIME, lease_ms=9, now=1)
    _, done = lane.ack([(4, 1)])
    _, gave = lane.release([(1, 1), (5, 1)], delay_ms=5, now=2)
    _, extended = lane.extend([(0, 1)], lease_ms=[99], now=2)
    snapshot = lane.snapshot()
    skipped = Lane(Policy(), 0).expire_before(9)
    moves = [skipped, lane.purge(9), lane.seek(3, end_offset=9)]
    effects = [took, done, gave, extended, *moves]
    return [snapshot, *(one.journal for one in effects if one.journal is not None)]


ENTRIES = entries()


def test_entries_have_the_bytes_that_are_documented() -> None:
    assert journal.encode_done([7]) == bytes.fromhex("02 00000001 0000000000000007 00000001")
    assert journal.encode_move(journal_layout.KIND_PURGE, 258) == bytes.fromhex(
        "05 0000000000000102"
    )
    assert journal.encode_return([1, 3, 2, 9], 5, DeliveryEnd.UNSEEN) == bytes.fromhex(
        "03 01 0000000000000005 000000020000000000000001 00000003  0000000000000009 00000001"
    )
    group = journal.encode_group(2, 1_000, b"ab", range(4, 6))
    take = journal.encode_take(is_held=True, due_unix_ms=9, next_offset=6, groups=[group])
    assert take == bytes.fromhex(
        "01 01 0000000000000009 0000000000000006 00000001"
        "00000002 00000000000003e8 00000002 6162"
        "00000001 0000000000000004 00000002"
    )
    assert journal.encode_extend([1], 9) == bytes.fromhex(
        "04 0000000000000009 00000001 0000000000000001 00000001"
    )
    assert journal.encode_spared(2, [7]) == bytes.fromhex(
        "09 00000002 00000001 0000000000000007 00000001"
    )
    assert journal.encode_snapshot(3, [(5, 6)], [], []) == bytes.fromhex(
        "08 0000000000000003 00000001 0000000000000005 00000002 00000000 00000000"
    )


@given(OFFSETS)
def test_offsets_are_read_back(offsets: set[int]) -> None:
    (change,) = journal_parser.parse(journal.encode_done(list(offsets)))

    assert isinstance(change, journal_layout.Done)
    assert [at for part in change.offsets for at in part] == sorted(offsets)


def test_changes_on_end_are_one_entry() -> None:
    entry = journal.encode_extend([1], 5) + journal.encode_done([2])

    assert journal_parser.parse(entry) == [
        journal_layout.Extend(5, [range(1, 2)]),
        journal_layout.Done([range(2, 3)]),
    ]


def test_more_handed_out_early_than_fits_a_range_is_several() -> None:
    last = 3 * journal_layout.MESSAGES_MAX
    (change,) = journal_parser.parse(journal.encode_snapshot(0, [(1, last)], [], []))

    assert isinstance(change, journal_layout.Snapshot)
    assert sum(map(len, change.early)) == last


def test_empty_entry_changes_nothing() -> None:
    assert journal_parser.parse(b"") == []


@pytest.mark.parametrize("entry", ENTRIES)
def test_entry_that_ends_early_is_corrupt(entry: bytes) -> None:
    for size in range(1, len(entry)):
        with pytest.raises(CorruptBatch):
            journal_parser.parse(entry[:size])


@pytest.mark.parametrize(
    "entry",
    [
        b"\x00",
        b"\x09",
        b"\xff" * 40,
        journal.encode_move(journal_layout.KIND_SEEK, -1),
        struct.pack(">BI", 2, 1 << 31),
        struct.pack(">BIqI", 2, 1, 0, 0),
        struct.pack(">BIqI", 2, 1, -5, 1),
        struct.pack(">BIqI", 2, 1, 0, journal_layout.MESSAGES_MAX + 1),
        struct.pack(">BIqIqI", 2, 2, 5, 2, 6, 1),
        struct.pack(">BIqIqI", 2, 2, 0, journal_layout.MESSAGES_MAX, 1 << 40, 1),
        struct.pack(">BIqI", 2, 1, 0, journal_layout.MESSAGES_MAX)
        + journal.encode_done([1 << 50]),
        struct.pack(">BBqqIIqi", 1, 0, 9, 9, 1, 1, 9, -2) + b"\0" * 9,
    ],
)
def test_garbage_is_corrupt(entry: bytes) -> None:
    with pytest.raises(CorruptBatch):
        Lane(Policy(), 0).apply(entry)


@given(st.sampled_from(ENTRIES), st.data())
def test_any_byte_changed_is_an_entry_or_corrupt(entry: bytes, data: st.DataObject) -> None:
    changed = bytearray(entry)
    at = data.draw(st.integers(0, len(entry) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        changes = journal_parser.parse(bytes(changed))
    except CorruptBatch:
        return
    assert changes
