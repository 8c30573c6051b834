"""Reading a journal of lanes that has a partition for each shard.

The entries of a lane are in the partition of its shard. After ``headgate reshard`` they are in
another one, until the start has written a snapshot of each lane in its shard and truncated what was
before; nothing changes in between. So, where a start was cut short and a lane has entries in two
partitions, both say the same, and those in its shard count.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway.broker import Broker
from gateway.model import parse_batch_header
from gateway.partition import Partition
from gateway.queues.journal_entries import EntryAssembler, OnEntry
from gateway.records.codec import iter_records

_LOAD_BYTES: Final = 1_048_576


async def read_entries(
    broker: Broker,
    partitions: Sequence[Partition],
    is_home: Callable[[bytes, Partition], bool],
    on_entry: OnEntry,
) -> bool:
    """Read all entries, in order by lane; return whether some are in another shard than their own.

    Errors: ``StorageUnavailable``, ``CorruptBatch``.
    """
    at_home: set[bytes] = set()  # lanes with a snapshot in their shard
    elsewhere: list[tuple[bytes, bytes, bool]] = []
    for partition in partitions:

        def on_read(
            lane: bytes,
            entry: bytes,
            is_snapshot: bool,  # noqa: FBT001 - as OnEntry
            partition: Partition = partition,
        ) -> None:
            if not is_home(lane, partition):
                elsewhere.append((lane, entry, is_snapshot))
                return
            if is_snapshot:
                at_home.add(lane)
            on_entry(lane, entry, is_snapshot)

        await _read_partition(broker, partition, on_read)
    for lane, entry, is_snapshot in elsewhere:
        if lane not in at_home:
            on_entry(lane, entry, is_snapshot)
    return bool(elsewhere)


async def _read_partition(broker: Broker, partition: Partition, on_entry: OnEntry) -> None:
    offset = partition.log_start_offset
    assembly = EntryAssembler(on_entry)
    while offset < partition.high_watermark:
        batches = broker.read(partition, offset, bytes_max=_LOAD_BYTES)
        if batches is None:
            batches = await broker.read_disk(partition, offset, bytes_max=_LOAD_BYTES)
        for batch in batches:
            broker.stored.check(partition, batch)
            for record in iter_records(batch):
                if record.offset >= offset and record.key and record.value is not None:
                    assembly.add(record.key, record.value, record.headers)
            offset = parse_batch_header(batch).last_offset + 1
        await asyncio.sleep(0)  # The loop serves others while much is loaded.
