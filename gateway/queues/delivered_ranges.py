"""Contiguous messages that were handed out together, with the stored batch that has them."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple, cast

from gateway.model import Record
from gateway.partition import Partition
from gateway.queues.cached_batch import CachedBatch, Unreadable
from gateway.queues.model import Delivery

# Without a frame of Python for each: 0.1 us a message where its class costs 0.4.
_new_delivery = cast(
    "Callable[[tuple[int, int, int, Record]], Delivery]", partial(tuple.__new__, Delivery)
)


class FoundRange(NamedTuple):
    """Contiguous messages that were taken, before anybody has looked whether they may be delivered.

    ``batch``: the batch that has them, or why there is none.
    """

    partition: Partition
    offsets: range
    attempt: int
    first_taken_unix_ms: int
    failed_count: int
    batch: CachedBatch | Unreadable


class DeliveredRange(NamedTuple):
    """Contiguous messages of one stored batch, handed out together and equally often.

    ``attempt`` counts from 1; ``failed_count`` of the earlier ones have failed. The messages are
    settled by partition number, offsets and attempt: ``Queue.settle_ranges``.
    ``Queue.records_of`` returns the records, ``Queue.shown_of`` a protocol's own form of them.
    ``batch.runs`` are the runs it was appended from, while they are in memory and nobody needed
    its records.
    """

    partition: Partition
    offsets: range
    attempt: int
    first_taken_unix_ms: int
    failed_count: int
    batch: CachedBatch

    @property
    def number(self) -> int:
        """The partition's number."""
        return self.partition.number


def deliveries_of(delivered: DeliveredRange, records: Sequence[Record]) -> list[Delivery]:
    """Return the messages of a range one by one; ``records`` are its records."""
    partition, _, attempt, first_taken_unix_ms, _, _ = delivered
    number = partition.number
    return list(
        map(
            _new_delivery,
            zip(repeat(number), repeat(attempt), repeat(first_taken_unix_ms), records),
        )
    )
