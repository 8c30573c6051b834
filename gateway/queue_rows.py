"""The common case of a receive: messages in a row that are in memory, as their protocol shows them.

A protocol makes of the records of a batch what it shows of each, once; then a receive of ten is a
slice of that. Where a batch or a message is not of the plain kind there is no row, and the receive
goes the way of all others (``gateway.queue_receivers``), which gives the same messages.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gateway.model import EXPIRES_AT, Record
from gateway.partition import Partition

FIRST_ATTEMPT: Final = 1  # of all messages of a row
SHOWN_BATCH_BYTES_MAX: Final = 524_288  # a larger batch costs too much memory twice
SHOWN_BYTES: Final = 33  # what a piece of ``shown`` takes beside its octets

Columns = Sequence[Sequence[bytes]]
Show = Callable[[Partition, Sequence[Record]], Columns | None]
"""Returns what is shown of the records: columns, each with a piece for each of them, in order.

None when one of them is not plain. It must be the same function whenever it is called for a
partition: its answers are kept.
"""


class Row(NamedTuple):
    """Messages in a row that were handed out for the first time. ``shown``: see ``Show``."""

    number: int  # of the partition
    offsets: range
    shown: Columns


class Shown:
    """What a batch of plain messages looks like; without ``columns`` it is not one of these."""

    __slots__ = ("columns", "oldest_unix_ms", "size_bytes")

    def __init__(self, partition: Partition, records: Sequence[Record], show: Show) -> None:
        self.columns: Columns = ()
        self.oldest_unix_ms = 0
        if records and not _may_expire(records):
            self.columns = show(partition, records) or ()
            self.oldest_unix_ms = min(record[1] for record in records)
        self.size_bytes = sum(
            sum(map(len, column)) + SHOWN_BYTES * len(column) for column in self.columns
        )


def _may_expire(records: Sequence[Record]) -> bool:
    headers: object = ()
    for record in records:
        found = record[4]  # those of one sender are shared
        if found is not headers:
            headers = found
            if any(name == EXPIRES_AT for name, _ in found):
                return True
    return False
