"""Tracer: finds sampled messages among appends, and makes spans of what happens to them.

Appended batches are searched for a ``traceparent``; only a batch that has one is decoded. Sampled
messages are remembered by partition and offset, so that reads need not be searched. Loop only.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gateway.clock import Clock
from gateway.config.otel import OtelConfig
from gateway.errors import CorruptBatch, StorageUnavailable
from gateway.model import COMPRESSION_MASK, HEADER_BYTES, Buffer
from gateway.partition import Partition, Write
from gateway.records.codec import DECOMPRESSED_BYTES_MAX, iter_records
from gateway.records.compression import decompress
from gateway.tracing.span import Span
from gateway.tracing.trace_context import TRACEPARENT, TraceContext, parse_sampled

SPANS_PER_BATCH_MAX: Final = 100
"""Sampled messages of one batch that are traced; the others are not."""
_HEADER: Final = re.compile(TRACEPARENT.encode())
_NS_PER_MS: Final = 1_000_000

Submit = Callable[[Span], None]


class _Traced:
    """A sampled message, and when it was handed out last; 0 when it was not."""

    __slots__ = ("context", "received_unix_ns")

    def __init__(self, context: TraceContext) -> None:
        self.context = context
        self.received_unix_ns = 0


class Tracer:
    """Spans of sampled messages; ``submit`` takes each and must not block."""

    def __init__(self, clock: Clock, config: OtelConfig, submit: Submit) -> None:
        self._clock = clock
        self._submit = submit
        self._messages_max = config.messages_remembered_max
        self._order: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._by_partition: dict[int, dict[int, _Traced]] = {}

    def now_unix_ns(self) -> int:
        """Return the time for spans."""
        return self._clock.unix_ms() * _NS_PER_MS

    def appended(
        self, writes: Sequence[Write], begun_unix_ns: int, error: StorageUnavailable | None
    ) -> None:
        """Make spans of the sampled messages of an append that is done."""
        for write in writes:
            if not write.partition.topic.is_internal and (found := _sampled(write)):
                for one in (write, *write.further):
                    self._appended(one, found, begun_unix_ns, error)

    def _appended(
        self,
        write: Write,
        sampled: list[tuple[int, TraceContext]],
        begun_unix_ns: int,
        error: StorageUnavailable | None,
    ) -> None:
        partition = write.partition
        for delta, context in sampled:
            offset = write.base_offset + delta
            span = self._span("publish", partition, offset, context, begun_unix_ns)
            if error is None:
                self._remember(partition.partition_id, offset, context)
            else:
                span = span._replace(error=str(error))
            self._submit(span)

    def received(self, partition: Partition, offsets: Iterable[int]) -> None:
        """Make spans of the sampled messages among those that a reader gets."""
        known = self._by_partition.get(partition.partition_id)
        if not known:
            return
        now_unix_ns = self.now_unix_ns()
        for offset in _among(known, offsets):
            known[offset].received_unix_ns = now_unix_ns
            context = known[offset].context
            self._submit(self._span("receive", partition, offset, context, now_unix_ns))

    def settled(self, partition: Partition, offsets: Iterable[int], outcome: str) -> None:
        """Make spans of settled messages; they begin when the message was handed out."""
        known = self._by_partition.get(partition.partition_id)
        if not known:
            return
        for offset in _among(known, offsets):
            traced = known[offset]
            begun_unix_ns = traced.received_unix_ns or self.now_unix_ns()
            span = self._span("settle", partition, offset, traced.context, begun_unix_ns)
            self._submit(span._replace(outcome=outcome))

    def _span(
        self,
        operation: str,
        partition: Partition,
        offset: int,
        context: TraceContext,
        begun_unix_ns: int,
    ) -> Span:
        topic = partition.topic.name.name
        ended_unix_ns = max(begun_unix_ns, self.now_unix_ns())
        return Span(
            operation, context, topic, partition.number, offset, begun_unix_ns, ended_unix_ns
        )

    def _remember(self, partition_id: int, offset: int, context: TraceContext) -> None:
        self._by_partition.setdefault(partition_id, {})[offset] = _Traced(context)
        self._order[partition_id, offset] = None
        if len(self._order) > self._messages_max:
            (oldest_id, oldest_offset), _ = self._order.popitem(last=False)
            known = self._by_partition[oldest_id]
            del known[oldest_offset]
            if not known:
                del self._by_partition[oldest_id]


def _among(known: dict[int, _Traced], offsets: Iterable[int]) -> list[int]:
    """Return the known offsets among some; a range may be long, so the shorter side is walked."""
    if isinstance(offsets, range) and len(known) < len(offsets):
        return sorted(offset for offset in known if offset in offsets)
    return [offset for offset in offsets if offset in known]


def _sampled(write: Write) -> list[tuple[int, TraceContext]]:
    """Return the sampled messages of a batch: how far from its base offset, and the context."""
    header = write.header
    if header.is_control:
        return []
    try:
        searched: Buffer = write.batch
        if codec := header.attributes & COMPRESSION_MASK:
            data = bytes(memoryview(write.batch)[HEADER_BYTES:])
            searched = decompress(codec, data, bytes_max=DECOMPRESSED_BYTES_MAX)
        if _HEADER.search(searched) is None:
            return []
        return _contexts(write)
    except CorruptBatch:  # of a topic that takes what nobody can decode
        return []


def _contexts(write: Write) -> list[tuple[int, TraceContext]]:
    found: list[tuple[int, TraceContext]] = []
    for record in iter_records(write.batch):
        for name, value in record.headers:
            if name == TRACEPARENT and (context := parse_sampled(value)) is not None:
                found.append((record.offset - write.base_offset, context))
                break
        if len(found) >= SPANS_PER_BATCH_MAX:
            break
    return found
