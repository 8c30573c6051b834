"""The common case of a receive: messages in a row that are in memory, as their protocol shows them.

A protocol makes of the records of a batch, or of the next ones of a large batch, what it shows of
each, once; then a receive of ten is a slice of that. One that has put messages in itself may say
so then, and no record is made of them.
Where a batch or a message is not of the plain kind there is no row, and the receive goes the way
of all others (``gateway.queues.receivers``), which gives the same messages.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from gateway.model import EXPIRES_AT, Record
from gateway.partition import Partition
from gateway.records.codec import RecordRun

FIRST_ATTEMPT: Final = 1  # of all messages of a row
SHOWN_RECORDS_MAX: Final = 256  # of a batch at a time: of what is shown, one piece is kept
SHOWN_RUNS_BYTES_MAX: Final = 524_288  # a larger batch costs too much memory twice
SHOWN_VALUES_BYTES_MAX: Final = 524_288  # and so do larger values, all of a piece
SHOWN_BYTES: Final = 33  # what a piece of ``shown`` takes beside its bytes
REFERENCE_BYTES: Final = 8

Columns = Sequence[Sequence[bytes]]
Show = Callable[[Partition, Sequence[Record]], Columns | None]
"""Returns what is shown of the records: columns, each with a piece for each of them, in order.

None when one of them is not plain. It must be the same function whenever it is called for a
partition: its answers are kept.
"""


class ContiguousMessages(NamedTuple):
    """Messages in a row that were handed out for the first time. ``shown``: see ``Show``."""

    number: int  # of the partition
    offsets: range
    shown: Columns
    taken_unix_ms: int


class ShownRun(NamedTuple):
    """What ``show`` would make of a run, by who has put it into the log and knows it already.

    It is the run's ``shown``. None of its messages expires.
    """

    show: Show
    columns: Columns
    size_bytes: int


class Shown:
    """What a piece of a batch looks like; without ``columns`` not all of it is plain messages.

    ``first`` and ``end`` are the indexes, within the batch, of the records that it is of.
    """

    __slots__ = ("columns", "end", "first", "oldest_unix_ms", "size_bytes")

    def __init__(
        self, columns: Columns, first: int, end: int, oldest_unix_ms: int, size_bytes: int
    ) -> None:
        self.columns = columns
        self.first = first
        self.end = end
        self.oldest_unix_ms = oldest_unix_ms
        self.size_bytes = size_bytes


def shown_records(
    partition: Partition, batch: Sequence[Record], index: int, show: Show
) -> Shown:
    """Return what the piece of a batch looks like that the record at an index is in."""
    first = index - index % SHOWN_RECORDS_MAX
    records = batch[first : first + SHOWN_RECORDS_MAX]
    columns: Columns = ()
    oldest_unix_ms = 0
    if (
        records
        and sum(len(record[3] or b"") for record in records) <= SHOWN_VALUES_BYTES_MAX
        and not _may_expire(records)
    ):
        columns = show(partition, records) or ()
        oldest_unix_ms = min(record[1] for record in records)
    size_bytes = sum(_column_bytes(column, records) for column in columns)
    return Shown(columns, first, first + len(records), oldest_unix_ms, size_bytes)


def shown_runs(runs: Sequence[RecordRun], show: Show) -> Shown | None:
    """Return what a batch made of ``runs`` looks like, None where that is not known of all."""
    found: list[Columns] = []
    for run in runs:
        shown = run.shown
        if type(shown) is not ShownRun or shown.show is not show:
            return None
        found.append(shown.columns)
    oldest_unix_ms = min(run.timestamp_unix_ms for run in runs)
    columns = [list(chain.from_iterable(column)) for column in zip(*found, strict=True)]
    size_bytes = REFERENCE_BYTES * sum(map(len, columns))
    return Shown(columns, 0, len(columns[0]), oldest_unix_ms, size_bytes)


def _column_bytes(column: Sequence[bytes], records: Sequence[Record]) -> int:
    """Return what a column takes in memory: next to nothing where its pieces are shared."""
    size_bytes = REFERENCE_BYTES * len(column)
    is_shared = len(column) > 1 and column[0] is column[-1]
    if is_shared or column[0] is records[0][3]:
        return size_bytes
    return size_bytes + sum(map(len, column)) + SHOWN_BYTES * len(column)


def _may_expire(records: Sequence[Record]) -> bool:
    headers: object = ()
    for record in records:
        found = record[4]  # those of one sender are shared
        if found is not headers:
            headers = found
            if any(name == EXPIRES_AT for name, _ in found):
                return True
    return False
