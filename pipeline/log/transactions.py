"""Transactions of a log's partitions, derived from the log: where readers end, what they skip.

An internal topic has the state of each partition that has ever had a transaction, as of an offset;
the headers of the batches from there on say the rest. Other partitions cost nothing. A view then
ends at the last stable offset, and its extents name the aborted transactions whose batches a reader
leaves out.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from operator import itemgetter
from typing import Final

from gateway.errors import GatewayError
from gateway.model import (
    CONTROL_MASK,
    DEFAULT_NAMESPACE,
    HEADER_BYTES,
    TRANSACTIONAL_MASK,
    TopicName,
    is_abort_marker,
    unpack_batch_header,
)
from gateway.records.codec import iter_records
from gateway.records.stored_transactions import (
    TRANSACTIONS_TOPIC,
    PartitionTransactions,
    StoredTransactions,
    apply_batch,
    partition_id_of,
)
from pipeline.log.views import Extent, ExtentReader, PartitionView

_TOPIC: Final = TopicName(DEFAULT_NAMESPACE, TRANSACTIONS_TOPIC)

OpenExtents = Callable[[str, Sequence[Extent]], AbstractContextManager[ExtentReader]]
Views = dict[int, PartitionView]

_BY_LAST = itemgetter(1)


def with_transactions(views: Views, open_extents: OpenExtents) -> Views:
    """Return the views up to their last stable offsets, with aborted ranges in their extents.

    Errors: ``FileGone`` when a file was removed meanwhile; ``StorageUnavailable``.
    """
    found = dict(views)
    for partition_id, stored in _stored(views, open_extents).items():
        view, transactions = views.get(partition_id), stored.restore()
        if view is not None and transactions is not None:
            _replay(view, transactions, open_extents)
            found[partition_id] = _bounded(view, transactions)
    return found


def without_aborted(
    batches: Iterable[tuple[int, memoryview]], extent: Extent
) -> Iterator[tuple[int, memoryview]]:
    """Yield the batches of an extent without those of aborted transactions."""
    if not extent.aborted:
        yield from batches
        return
    ranges: dict[int, list[tuple[int, int]]] = {}
    for producer_id, first, last in extent.aborted:
        ranges.setdefault(producer_id, []).append((first, last))
    for base_offset, data in batches:
        if not _is_aborted(base_offset, data, ranges):
            yield base_offset, data


def _is_aborted(
    base_offset: int, data: memoryview, ranges: Mapping[int, Sequence[tuple[int, int]]]
) -> bool:
    if len(data) < HEADER_BYTES:
        return False
    header = unpack_batch_header(data[:HEADER_BYTES])
    if header.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK) != TRANSACTIONAL_MASK:
        return False
    found = ranges.get(header.producer_id, ())
    at = bisect_left(found, base_offset, key=_BY_LAST)  # they are ascending
    return at < len(found) and found[at][0] <= base_offset


def _stored(views: Views, open_extents: OpenExtents) -> dict[int, StoredTransactions]:
    """Return the items of the internal topic, by the partitions they are of."""
    found: dict[int, StoredTransactions] = {}
    for view in views.values():
        if view.identity.topic != _TOPIC:
            continue
        for _, data in _batches(view.extents, open_extents):
            with suppress(GatewayError):  # damaged: the audit says so
                for record in iter_records(data):
                    if record.key is not None and record.offset >= view.start:
                        partition_id = partition_id_of(record.key)
                        stored = found.setdefault(partition_id, StoredTransactions())
                        stored.add(record.key, record.value)
    return found


def _batches(
    extents: Iterable[Extent], open_extents: OpenExtents
) -> Iterator[tuple[int, memoryview]]:
    for extent in extents:
        with open_extents(extent.path, [extent]) as reader:
            yield from reader.batches(extent)


def _replay(
    view: PartitionView, transactions: PartitionTransactions, open_extents: OpenExtents
) -> None:
    """Apply the batches that are newer than the state."""
    applied_end = transactions.applied_end
    newer = [
        extent._replace(first=max(extent.first, applied_end))
        for extent in view.extents
        if extent.end > applied_end
    ]
    for base_offset, data in _batches(newer, open_extents):
        if len(data) >= HEADER_BYTES:
            header = unpack_batch_header(data[:HEADER_BYTES])
            is_abort = is_abort_marker(data)
            apply_batch(transactions, header, base_offset, is_abort=is_abort)


def _bounded(view: PartitionView, transactions: PartitionTransactions) -> PartitionView:
    end = max(transactions.stable_end(view.end), view.start)
    extents = []
    for extent in view.extents:
        if extent.first < end:
            upto = min(extent.end, end)
            aborted = transactions.aborted.overlapping(extent.first, upto)
            extents.append(extent._replace(end=upto, aborted=tuple(aborted)))
    return view._replace(end=end, extents=extents)
