"""Idempotent producers (KIP-98): each batch of a producer once per partition, in its order.

A producer id's state in a partition is its epoch and its last five batches; a batch sent again
is answered with the offset it got the first time. The state changes only with an append, and is
rebuilt from the batches' own headers, so it can be neither ahead of the log nor behind it.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.errors import OutOfOrderSequence, ProducerFenced
from gateway.model import BatchHeader

BATCHES_KEPT: Final = 5  # Kafka's max.in.flight.requests.per.connection with idempotence
SEQUENCE_MODULUS: Final = 1 << 31

_PRODUCER: Final = struct.Struct(">qhqB")
_BATCH: Final = struct.Struct(">iiq")


class SequencedBatch(NamedTuple):
    """A batch we remember: its first sequence, its record count, its base offset."""

    first_sequence: int
    record_count: int
    base_offset: int

    @property
    def next_sequence(self) -> int:
        """The sequence that follows; after 2^31 - 1 comes 0."""
        return (self.first_sequence + self.record_count) % SEQUENCE_MODULUS


class _Producer:
    """One producer id's state in one partition. ``batches`` are its last five, oldest first."""

    __slots__ = ("batches", "epoch", "used_unix_ms")

    def __init__(self, epoch: int, used_unix_ms: int) -> None:
        self.epoch = epoch
        self.used_unix_ms = used_unix_ms
        self.batches: list[SequencedBatch] = []


class ProducerSequences:
    """The idempotent producers of one partition, at most ``producers_max`` of them.

    Above the bound the one that has been idle longest is forgotten; its next batch is then
    taken as that of a producer we have never seen, as Kafka does after
    ``producer.id.expiration.ms``.
    """

    __slots__ = ("_producers", "_producers_max")

    def __init__(self, *, producers_max: int) -> None:
        self._producers: dict[int, _Producer] = {}  # least recently used first
        self._producers_max = producers_max

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> SequencedBatch | None:
        """Return the batch that ``header`` repeats, or None when it comes next in order.

        Errors: ``ProducerFenced`` for an epoch below the one we know, ``OutOfOrderSequence``
        for a gap, for what is older than the five batches we remember, and for a new epoch that
        does not begin at 0. A producer without state may begin anywhere.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch != producer.epoch:
            _check_new_epoch(header, producer.epoch)
            return None
        sequence = header.base_sequence
        if sequence == producer.batches[-1].next_sequence:
            return None
        for batch in producer.batches:
            if batch.first_sequence == sequence and batch.record_count == header.record_count:
                return batch
        msg = (
            f"producer {header.producer_id} sent sequence {sequence}, "
            f"{producer.batches[-1].next_sequence} comes next"
        )
        raise OutOfOrderSequence(msg)

    def record(self, header: BatchHeader, base_offset: int, now_unix_ms: int) -> None:
        """Remember a batch that was appended at ``base_offset``; ``check`` has passed it.

        Of one that is stored with fewer records (some wait for their time), the last offset
        tells how many sequences it had.
        """
        producer = self._producers.pop(header.producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = _Producer(header.producer_epoch, now_unix_ms)
        producer.used_unix_ms = now_unix_ms
        if len(producer.batches) == BATCHES_KEPT:
            del producer.batches[0]
        producer.batches.append(
            SequencedBatch(header.base_sequence, header.last_offset_delta + 1, base_offset)
        )
        self._producers[header.producer_id] = producer
        if len(self._producers) > self._producers_max:
            del self._producers[next(iter(self._producers))]

    def expire(self, used_before_unix_ms: int) -> int:
        """Forget producers that were last used before that time; return how many."""
        stale = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.used_unix_ms < used_before_unix_ms
        ]
        for producer_id in stale:
            del self._producers[producer_id]
        return len(stale)

    def active(self) -> Iterator[tuple[int, int, SequencedBatch, int]]:
        """Yield (producer id, epoch, last batch, last used unix ms) of each, for admin APIs."""
        for producer_id, producer in self._producers.items():
            yield producer_id, producer.epoch, producer.batches[-1], producer.used_unix_ms

    def snapshot(self) -> bytes:
        """Return the state as bytes, which ``restore`` reads. Layout: docs/formats.md."""
        out = bytearray()
        for producer_id, producer in self._producers.items():
            batches = producer.batches
            out += _PRODUCER.pack(
                producer_id, producer.epoch, producer.used_unix_ms, len(batches)
            )
            for batch in batches:
                out += _BATCH.pack(*batch)
        return bytes(out)

    def restore(self, snapshot: bytes) -> None:
        """Take over a state that ``snapshot`` made."""
        self._producers.clear()
        at = 0
        while at < len(snapshot):
            producer_id, epoch, used_unix_ms, count = _PRODUCER.unpack_from(snapshot, at)
            at += _PRODUCER.size
            producer = _Producer(epoch, used_unix_ms)
            for _ in range(count):
                producer.batches.append(SequencedBatch._make(_BATCH.unpack_from(snapshot, at)))
                at += _BATCH.size
            self._producers[producer_id] = producer


def _check_new_epoch(header: BatchHeader, epoch: int) -> None:
    if header.producer_epoch < epoch:
        msg = (
            f"producer {header.producer_id} has epoch {header.producer_epoch}, {epoch} is known"
        )
        raise ProducerFenced(msg)
    if header.base_sequence != 0:
        msg = (
            f"a new epoch of producer {header.producer_id} begins at "
            f"{header.base_sequence}, not 0"
        )
        raise OutOfOrderSequence(msg)
