"""Protocols' own forms of messages, kept with the cached batch.

A protocol converts the records of a batch, or a piece of a large batch, once; then a receive of
ten messages is a slice of the result. A protocol that sent the messages itself may give the
result at the send, and no record is decoded. Each protocol has a place of its own in a batch.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from gateway.model import Record
from gateway.partition import Partition
from gateway.records.record_run import RecordRun

SHOWN_RECORDS_MAX: Final = 256  # converted at a time; one such piece is kept for a batch
SHOWN_RUNS_BYTES_MAX: Final = 524_288  # a larger batch costs too much memory twice
SHOWN_VALUES_BYTES_MAX: Final = 524_288  # the same for the values of a piece
SHOWN_BYTES: Final = 33  # overhead of one element of ``shown``
REFERENCE_BYTES: Final = 8

Columns = Sequence[Sequence[bytes]]
Show = Callable[[Partition, Sequence[Record]], Columns | None]
"""Returns the protocol's form of records: columns, each with an element per record, in order.

None when a record is not plain. Results are kept by function: pass the same function each time.
"""


class ShownRun(NamedTuple):
    """Result of ``show`` for a run, given by the sender of the run.

    It is the run's ``shown``.
    """

    show: Show
    columns: Columns
    size_bytes: int


class Shown:
    """Protocol's form of a piece of a batch; without ``columns`` not all messages are plain.

    ``first`` and ``end`` are the indexes of its records within the batch.
    """

    __slots__ = ("columns", "end", "first", "size_bytes")

    def __init__(self, columns: Columns, first: int, end: int, size_bytes: int) -> None:
        self.columns = columns
        self.first = first
        self.end = end
        self.size_bytes = size_bytes


def shown_records(
    partition: Partition, batch: Sequence[Record], index: int, show: Show
) -> Shown:
    """Return the protocol's form of the piece that contains the record at an index."""
    first = index - index % SHOWN_RECORDS_MAX
    records = batch[first : first + SHOWN_RECORDS_MAX]
    columns: Columns = ()
    if sum(len(record[3] or b"") for record in records) <= SHOWN_VALUES_BYTES_MAX:
        columns = show(partition, records) or ()
    size_bytes = sum(_column_bytes(column, records) for column in columns)
    return Shown(columns, first, first + len(records), size_bytes)


def shown_runs(runs: Sequence[RecordRun], show: Show) -> Shown | None:
    """Return the protocol's form of a batch of ``runs``, None unless all runs have it."""
    found: list[Columns] = []
    for run in runs:
        shown = run.shown
        if type(shown) is not ShownRun or shown.show is not show:
            return None
        found.append(shown.columns)
    columns = [list(chain.from_iterable(column)) for column in zip(*found, strict=True)]
    size_bytes = REFERENCE_BYTES * sum(map(len, columns))
    return Shown(columns, 0, len(columns[0]), size_bytes)


def _column_bytes(column: Sequence[bytes], records: Sequence[Record]) -> int:
    """Return a column's memory in bytes: references only where its elements are shared."""
    size_bytes = REFERENCE_BYTES * len(column)
    is_shared = len(column) > 1 and column[0] is column[-1]
    if is_shared or column[0] is records[0][3]:
        return size_bytes
    return size_bytes + sum(map(len, column)) + SHOWN_BYTES * len(column)
