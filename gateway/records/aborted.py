"""Removal of aborted data from what readers of committed data get."""

import struct
from collections.abc import Sequence
from typing import Final

from features.compaction.rebuilding import without_records
from features.open_transactions import PartitionTransactions
from gateway.model import (
    CONTROL_AT,
    CONTROL_MASK,
    HEADER_BYTES,
    TRANSACTIONAL_MASK,
    Buffer,
    unpack_batch_header,
)

_KIND_MASK: Final = TRANSACTIONAL_MASK | CONTROL_MASK
_BASE_OFFSET: Final = struct.Struct(">q")
_PRODUCER_ID: Final = struct.Struct(">q")
_PRODUCER_ID_AT: Final = 43


def without_aborted(
    transactions: PartitionTransactions | None, batches: Sequence[Buffer]
) -> Sequence[Buffer]:
    """Return stored batches below the stable end, those of aborted transactions emptied.

    An emptied batch is a control batch without records: its offsets show where to go on. Damaged
    batches are left as they are.
    """
    if transactions is None or not transactions.aborted:
        return batches
    aborted = transactions.aborted
    found: list[Buffer] | None = None
    for index, batch in enumerate(batches):
        if len(batch) < HEADER_BYTES or batch[CONTROL_AT] & _KIND_MASK != TRANSACTIONAL_MASK:
            continue
        (base_offset,) = _BASE_OFFSET.unpack_from(batch)
        (producer_id,) = _PRODUCER_ID.unpack_from(batch, _PRODUCER_ID_AT)
        if aborted.covers(producer_id, base_offset):
            found = found or list(batches)
            header = unpack_batch_header(batch)
            attributes = header.attributes | CONTROL_MASK
            found[index] = without_records(header._replace(attributes=attributes))
    return batches if found is None else found
