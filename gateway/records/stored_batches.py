"""Check of stored batches, once, where they are first decoded.

A disk may give back other bytes than were written. Clients of Kafka compare the CRC of what they
fetch themselves; for all others the node does, before it decodes a batch. What comes live, or is
kept decoded, was checked when it came in, and is not checked again. It takes 0.2 us a KB.
"""

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

import structlog

from gateway.errors import CorruptBatch
from gateway.model import Buffer, parse_batch_header
from gateway.records.codec import check_crc

if TYPE_CHECKING:
    from gateway.partition import Partition

TOPICS_MAX: Final = 100  # counted by name; the others together
OTHERS: Final = "others"
_REMEMBERED_MAX: Final = 1_024  # batches, so that one that is read again counts once

_log = structlog.get_logger()


class StoredBatches:
    """Counter of damaged batches by topic, for readers and the scrub, in any thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._known: OrderedDict[tuple[int, int], None] = OrderedDict()

    def is_intact(self, partition: "Partition", batch: Buffer) -> bool:
        """Say whether a batch is undamaged; a damaged one is counted, and logged once."""
        header = parse_batch_header(batch)
        try:
            check_crc(batch, header)
        except CorruptBatch:
            name = partition.topic.name.name
            self.note(name, partition.number, partition.partition_id, header.base_offset)
            return False
        return True

    def check(self, partition: "Partition", batch: Buffer) -> None:
        """Raise ``CorruptBatch`` for a damaged batch; see ``is_intact``."""
        if not self.is_intact(partition, batch):
            offset = parse_batch_header(batch).base_offset
            name = partition.topic.name.name
            msg = f"the batch at offset {offset} of {name}-{partition.number} is damaged"
            raise CorruptBatch(msg)

    def note(self, topic: str, number: int, partition_id: int, base_offset: int) -> None:
        """Count a damaged batch, unless it was counted before."""
        place = partition_id, base_offset
        if place in self._known:
            return
        self._known[place] = None
        if len(self._known) > _REMEMBERED_MAX:
            self._known.popitem(last=False)
        is_counted = topic in self.counts or len(self.counts) < TOPICS_MAX
        self.counts[topic if is_counted else OTHERS] += 1
        _log.error(
            "a batch is damaged",
            topic=topic,
            partition=number,
            offset=base_offset,
            advice="its bytes on the disk have changed: check the disk, `headgate log verify`",
        )
