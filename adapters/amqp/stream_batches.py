"""Stored batches of streams in the form of deliveries, shared by all consumers of the node."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from adapters.amqp.stream_arguments import OFFSET, filter_value
from adapters.amqp.v091.errors import AmqpFault
from adapters.amqp.v091.fields import Field, Table
from adapters.amqp.v091.properties import Properties, decode_properties, encode_properties
from adapters.amqp.v091.shown import to_columns
from gateway.broker import Broker
from gateway.errors import CorruptBatch
from gateway.model import Buffer, Record, parse_batch_header
from gateway.partition import Partition
from gateway.records.codec import decode_batch
from gateway.records.decoding_cost import is_large

KEPT_BYTES_MAX: Final = 33_554_432
READ_BYTES_MAX: Final = 65_536  # of one turn; a batch is read whole
_ROW_BYTES: Final = 300  # of memory for each message, beside its bytes
_FLAGS_BYTES: Final = 2
_LENGTH_BYTES: Final = 4
_OFFSET_BYTES: Final = 8


class StreamRow(NamedTuple):
    """A message. Its properties are ``before``, the offset in 8 bytes, and ``after``.

    ``origin``: exchange and routing key; empty for the default exchange.
    """

    offset: int
    origin: bytes
    before: bytes
    after: bytes
    filter_value: str | None
    body: bytes

    @property
    def properties(self) -> bytes:
        """The properties with the header ``x-stream-offset``."""
        return self.before + self.offset.to_bytes(_OFFSET_BYTES, "big") + self.after


class StreamBatch(NamedTuple):
    """Messages of a stored batch; of one that cannot be decoded, none."""

    base_offset: int
    end_offset: int
    rows: Sequence[StreamRow]


class StreamBatches:
    """Reader of streams' batches, with a cache of ``KEPT_BYTES_MAX`` bytes. Loop only."""

    def __init__(self, broker: Broker, hidden: tuple[str, ...]) -> None:
        self._broker = broker
        self._hidden = hidden
        self._kept: OrderedDict[tuple[int, int], tuple[StreamBatch, int]] = OrderedDict()
        self._turn = asyncio.Lock()  # of decoding large batches
        self.kept_bytes = 0

    def read(self, partition: Partition, offset: int, base_offset: int) -> StreamBatch | None:
        """Return the batch with an offset, or an empty one at the stream's end.

        ``base_offset``: that of the batch, as far as the caller knows. None: ``load`` has to wait
        for a disk or a thread. Errors: those of ``Broker.read``.
        """
        kept = self._kept.get((partition.partition_id, base_offset))
        if kept is not None and offset < kept[0].end_offset:
            partition.check_present()
            self._kept.move_to_end((partition.partition_id, base_offset))
            return kept[0]
        batches = self._broker.read(partition, offset, bytes_max=READ_BYTES_MAX)
        if batches is None:
            return None
        if not batches:
            return StreamBatch(offset, offset, ())
        if is_large(parse_batch_header(batches[0])):
            return None
        return self._keep(partition, batches[0], self._decode(partition, batches[0]))

    async def load(self, partition: Partition, offset: int) -> StreamBatch:
        """Return what ``read`` does, waiting. Errors: those of ``Broker.read_disk``."""
        batches = await self._broker.read_disk(partition, offset, bytes_max=READ_BYTES_MAX)
        if not batches:
            return StreamBatch(offset, offset, ())
        header = parse_batch_header(batches[0])
        if not is_large(header):
            return self._keep(partition, batches[0], self._decode(partition, batches[0]))
        async with self._turn:
            kept = self._kept.get((partition.partition_id, header.base_offset))
            if kept is not None:
                return kept[0]
            rows = await asyncio.to_thread(self._decode, partition, batches[0])
            return self._keep(partition, batches[0], rows)

    def _decode(self, partition: Partition, batch: Buffer) -> Sequence[StreamRow]:
        """Return the messages of a batch; a damaged one is counted, and has none."""
        if not self._broker.stored.is_intact(partition, batch):
            return ()
        try:
            return to_rows(decode_batch(batch), self._hidden)
        except CorruptBatch:
            topic = partition.topic.name.name
            base_offset = parse_batch_header(batch).base_offset
            self._broker.stored.note(
                topic, partition.number, partition.partition_id, base_offset
            )
            return ()

    def _keep(
        self, partition: Partition, batch: Buffer, rows: Sequence[StreamRow]
    ) -> StreamBatch:
        header = parse_batch_header(batch)
        made = StreamBatch(header.base_offset, header.last_offset + 1, rows)
        size_bytes = sum(len(row.body) + len(row.before) for row in rows)
        size_bytes += _ROW_BYTES * (1 + len(rows))
        key = partition.partition_id, header.base_offset
        replaced = self._kept.pop(key, None)
        self.kept_bytes += size_bytes - (0 if replaced is None else replaced[1])
        self._kept[key] = made, size_bytes
        while self.kept_bytes > KEPT_BYTES_MAX and len(self._kept) > 1:
            _, (_, oldest_bytes) = self._kept.popitem(last=False)
            self.kept_bytes -= oldest_bytes
        return made


def to_rows(records: Sequence[Record], hidden: tuple[str, ...]) -> list[StreamRow]:
    """Return records as messages of a stream."""
    rows = []
    last: bytes | None = None
    before = after = b""
    value: str | None = None
    for record, origin, made, body in zip(records, *to_columns(records, hidden), strict=True):
        if made is not last:  # equal ones are one object: see ``to_columns``
            last = made
            before, after = split_properties(made)
            value = filter_value(record.headers)
        rows.append(StreamRow(record.offset, origin, before, after, value, body))
    return rows


def split_properties(data: bytes) -> tuple[bytes, bytes]:
    """Return properties with the header ``x-stream-offset``, cut before and behind its value."""
    try:
        properties = decode_properties(data)
    except AmqpFault:  # another protocol has written what only AMQP writes
        properties = Properties()
    pairs = [pair for pair in properties.table if pair[0] != OFFSET]
    table = Table([*pairs, (OFFSET, Field("l", 0))])
    made = encode_properties(properties._replace(headers=table))
    start = _FLAGS_BYTES
    for text in (properties.content_type, properties.content_encoding):
        start += 0 if text is None else 1 + len(text.encode())
    table_bytes = int.from_bytes(made[start : start + _LENGTH_BYTES], "big")
    cut = start + _LENGTH_BYTES + table_bytes
    return made[: cut - _OFFSET_BYTES], made[cut:]
