"""Rows and parts of one object, as the index stores them (docs/formats.md, section 11)."""

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice, repeat
from operator import add, sub
from typing import Final

from gateway.model import Buffer
from storage_adapters.formats.columns import VALUES_MAX, pack_columns, unpack_columns
from storage_adapters.formats.damage import Damaged
from storage_adapters.formats.footer import ROW_STRIDE

ROWS_MAX: Final = VALUES_MAX  # of one object

_ROWS: Final = 1  # differences to what follows from the row before
_ROWS_AS_THEY_ARE: Final = 2  # used when a difference does not fit 64 bits
_PARTS: Final = 3
# The number of columns of either length, by kind.
_ROWS_COLUMNS: Final = {_ROWS: (6, 0), _ROWS_AS_THEY_ARE: (6, 0)}
_PARTS_COLUMNS: Final = {_PARTS: (8, 2)}
_INT64_MAX: Final = (1 << 63) - 1
_LOW, _HIGH = (0, 1) if sys.byteorder == "little" else (1, 0)

# (first, end, number, first row, row count, bytes, highest timestamp, epochs), as Extent of S3.
PlainExtent = tuple[int, int, int, int, int, int, int, tuple[tuple[int, int], ...]]
PlainPart = tuple[int, PlainExtent]


def pack_rows(rows: "array[int]") -> bytes:
    """Pack a footer's rows (``ROW_STRIDE`` values each).

    Regular traffic takes 2 to 4 bytes a row. Errors: ``ValueError`` above ``ROWS_MAX`` rows.
    """
    offsets, timestamps = rows[0::ROW_STRIDE], rows[1::ROW_STRIDE]
    positions, sizes = _halves(rows[2::ROW_STRIDE])
    counts, epochs = _halves(rows[3::ROW_STRIDE])
    jumps = _behind(offsets, counts)
    steps = list(map(sub, timestamps, chain((0,), timestamps)))
    gaps = _behind(positions, sizes)
    if all(map(_fits, (jumps, steps))):
        return pack_columns(_ROWS, [jumps, steps, gaps, sizes, counts, epochs])
    plain = [offsets, timestamps, positions, sizes, counts, epochs]
    return pack_columns(_ROWS_AS_THEY_ARE, plain)


def unpack_rows(data: Buffer, *, rows_max: int = ROWS_MAX) -> "array[int]":
    """Unpack the result of ``pack_rows``. Errors: ``Damaged``, ``TooNew``.

    It takes 80 bytes of memory a row for a moment. ``rows_max``: more are damage; an object of so
    many bytes has no more than a twelfth of that in rows (a target's bytes in an entry).
    """
    kind, columns = unpack_columns(data, _ROWS_COLUMNS, values_max=rows_max)
    offsets, timestamps, positions, sizes, counts, epochs = columns
    rows = array("q", bytes(8 * ROW_STRIDE)) * len(offsets)
    try:
        if kind == _ROWS:
            offsets = array("q", _from_jumps(offsets, counts))
            timestamps = array("q", accumulate(timestamps))
            positions = array("q", _from_jumps(positions, sizes))
        rows[0::ROW_STRIDE] = offsets
        rows[1::ROW_STRIDE] = timestamps
        rows[2::ROW_STRIDE] = _joined(positions, sizes)
        rows[3::ROW_STRIDE] = _joined(counts, epochs)
    except OverflowError as error:
        raise Damaged(f"a packed row is out of range: {error}") from error
    return rows


def pack_parts(parts: Sequence[PlainPart]) -> bytes:
    """Pack parts (partition id, extent). The extents' number is left out.

    Errors: ``OverflowError`` for values out of the range of a log's offsets.
    """
    ids = [partition_id for partition_id, _ in parts]
    if not parts:
        return pack_columns(_PARTS, [()] * 8, [()] * 2)
    firsts, ends, _, first_rows, row_counts, sizes, timestamps, epochs = zip(
        *[extent for _, extent in parts], strict=True
    )
    columns = [
        list(map(sub, ids, chain((0,), ids))),
        firsts,
        list(map(sub, ends, firsts)),
        _behind(first_rows, row_counts),
        row_counts,
        sizes,
        timestamps,
        list(map(len, epochs)),
    ]
    bases = [
        (epoch, base - first)
        for first, pairs in zip(firsts, epochs, strict=True)
        for epoch, base in pairs
    ]
    return pack_columns(
        _PARTS, columns, [[epoch for epoch, _ in bases], [base for _, base in bases]]
    )


def unpack_parts(data: Buffer, number: int) -> list[PlainPart]:
    """Unpack the result of ``pack_parts`` for object ``number``.

    Errors: ``Damaged``, ``TooNew``.
    """
    _, columns = unpack_columns(data, _PARTS_COLUMNS)
    ids, firsts, lengths, gaps, row_counts, sizes, timestamps, epoch_counts, *pairs = columns
    epochs = _epochs_of(firsts, epoch_counts, *pairs)
    extents = zip(
        firsts,
        map(add, firsts, lengths),
        [number] * len(ids),
        _from_jumps(gaps, row_counts),
        row_counts,
        sizes,
        timestamps,
        epochs,
        strict=True,
    )
    return list(zip(accumulate(ids), extents, strict=True))


def _epochs_of(
    firsts: "array[int]", counts: "array[int]", epochs: "array[int]", jumps: "array[int]"
) -> list[tuple[tuple[int, int], ...]]:
    """Return each part's (leader epoch, base offset of its first batch). Errors: ``Damaged``."""
    if min(counts, default=0) < 0 or sum(counts) != len(epochs):
        raise Damaged("the epochs of packed parts are not as many as they say")
    if counts == array("q", [1]) * len(counts):
        # The common case: three times as fast as the loop below, at every start.
        return list(zip(zip(epochs, map(add, firsts, jumps), strict=True), strict=True))
    bases = map(add, chain.from_iterable(map(repeat, firsts, counts)), jumps)
    pairs = zip(epochs, bases, strict=True)
    return [tuple(islice(pairs, count)) for count in counts]


def _behind(values: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return each value's distance from the end of the value before it, the first from 0."""
    ends = chain((0,), map(add, values, sizes))
    return list(map(sub, values, ends))


def _from_jumps(jumps: "array[int]", sizes: "array[int]") -> Iterable[int]:
    """Return the values from the distances that ``_behind`` returned."""
    return accumulate(map(add, jumps, chain((0,), sizes)))


def _fits(values: list[int]) -> bool:
    return not values or (min(values) >= -_INT64_MAX - 1 and max(values) <= _INT64_MAX)


def _halves(values: "array[int]") -> tuple["array[int]", "array[int]"]:
    """Return the lower and the upper 32 bits of each value, both unsigned."""
    halves = array("I")
    halves.frombytes(values.tobytes())
    return halves[_LOW::2], halves[_HIGH::2]


def _joined(lower: "array[int]", upper: "array[int]") -> "array[int]":
    """Join the halves of values. Errors: ``OverflowError``."""
    halves = array("I", bytes(8)) * len(lower)
    halves[_LOW::2] = array("I", lower)
    halves[_HIGH::2] = array("I", upper)
    values = array("q")
    values.frombytes(halves.tobytes())
    return values
