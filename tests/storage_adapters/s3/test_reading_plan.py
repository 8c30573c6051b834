"""Plans of reads against the plainest reading of the contract."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from storage_adapters.formats.footer import LOW_32
from storage_adapters.s3.read_plan import Piece, plan_read
from storage_adapters.s3.state import Extent, PartitionState

# Of each batch: offsets left out before it, its offsets, its bytes, whether an object ends there.
_BATCHES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 3]),
        st.integers(1, 4),
        st.sampled_from([61, 75, 200]),
        st.sampled_from([False, False, True]),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)
_Batch = tuple[int, int, int]  # base offset, offsets, bytes


def _lay_out(
    steps: list[tuple[int, int, int, bool, bool]],
) -> tuple[PartitionState, dict[int, "array[int]"], list[_Batch]]:
    """Return a partition, rows by object, and its batches; some are cut out as by compaction."""
    state, batches = PartitionState(1), []
    rows: dict[int, array[int]] = {}
    own: array[int] = array("q", [9, 9, 9, 9] * 2)  # rows of another partition
    first = offset = 0
    for hole, count, size, ends, kept in steps:
        offset += hole
        if kept:
            batches.append((offset, count, size))
            own.extend((offset, 0, len(own) * 100 + (size << 32), count + (5 << 32)))
        offset += count
        if ends:
            _close(state, rows, own, (first, offset))
            own, first = array("q", [9, 9, 9, 9] * 2), offset
    _close(state, rows, own, (first, offset))
    return state, rows, batches


def _close(
    state: PartitionState,
    rows: dict[int, "array[int]"],
    own: "array[int]",
    span: tuple[int, int],
) -> None:
    number = len(rows) + 1
    rows[number] = own
    count = len(own) // 4 - 2
    size = sum(place >> 32 for place in own[10::4])
    if span[1] > span[0]:
        state.extents.append(Extent(*span, number, 2, count, size, 0, ()))
    state.end = span[1]


def _expected(
    batches: list[_Batch], start: int, end: int, bytes_max: int
) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for base_offset, count, size in batches:
        if base_offset + count <= start:
            continue
        if base_offset >= end or start >= end:
            break
        if found and sum(one[1] for one in found) + size > bytes_max:
            break
        found.append((base_offset, size))
    return found


def _planned(pieces: list[Piece]) -> list[tuple[int, int]]:
    return [
        pair for piece in pieces for pair in zip(piece.base_offsets, piece.sizes, strict=True)
    ]


@given(
    steps=_BATCHES,
    start=st.integers(0, 130),
    length=st.integers(-2, 130),
    bytes_max=st.integers(1, 2_000),
    log_start=st.sampled_from([0, 0, 7, 40]),
)
def test_plan_is_what_the_contract_says(
    steps: list[tuple[int, int, int, bool, bool]],
    start: int,
    length: int,
    bytes_max: int,
    log_start: int,
) -> None:
    state, rows, batches = _lay_out(steps)
    state.start = log_start

    pieces, missing = plan_read(state, start, start + length, bytes_max, rows.get)

    expected = _expected(batches, max(start, log_start), start + length, bytes_max)
    assert _planned(pieces) == expected
    assert missing == []
    for piece in pieces:
        ends = [
            base + (span & LOW_32)
            for base, span in zip(piece.base_offsets, piece.spans, strict=True)
        ]
        assert piece.next_offset == ends[-1]
        assert all(ends[n] <= piece.base_offsets[n + 1] for n in range(len(ends) - 1))


@given(steps=_BATCHES, bytes_max=st.integers(1, 5_000))
def test_plan_asks_for_rows_until_it_has_them(
    steps: list[tuple[int, int, int, bool, bool]], bytes_max: int
) -> None:
    state, rows, batches = _lay_out(steps)
    known: dict[int, array[int]] = {}

    for _ in range(len(rows) + 1):
        pieces, missing = plan_read(state, 0, 1 << 30, bytes_max, known.get)
        if not missing:
            break
        assert not known.keys() & set(missing)
        known.update({number: rows[number] for number in missing})

    assert missing == []
    assert _planned(pieces) == _expected(batches, 0, 1 << 30, bytes_max)


def test_areas_join_neighbours_and_nothing_else() -> None:
    # Two entries whose headers have 76 bytes, then one behind the smallest other entry.
    piece = Piece(1, [140, 316, 416 + 137 + 76], [100, 100, 61], [0, 1, 2], [1, 1, 1])
    assert piece.areas() == [(140, 416), (629, 690)]


def test_areas_are_in_order_of_position() -> None:
    piece = Piece(1, [5_000, 140], [100, 100], [0, 1], [1, 1])  # another's entry came first
    assert piece.areas() == [(140, 240), (5_000, 5_100)]
