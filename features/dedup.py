"""Idempotent producers (KIP-98): each batch of a producer once per partition, in its order.

A producer id's state in a partition is its epoch and its last five batches; a batch sent again
is answered with the offset it got the first time. The state changes only with an append, and is
rebuilt from the batches' own headers, so it can be neither ahead of the log nor behind it.
"""

import struct
from collections.abc import Container, Iterator
from typing import Final, NamedTuple

from gateway.errors import CoordinatorFenced, OutOfOrderSequence, ProducerFenced
from gateway.model import BatchHeader

BATCHES_KEPT: Final = 5  # Kafka's max.in.flight.requests.per.connection with idempotence
SEQUENCE_MODULUS: Final = 1 << 31

NO_COORDINATOR_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1

_PRODUCER: Final = struct.Struct(">qhqB")
_BATCH: Final = struct.Struct(">iiq")
_COORDINATOR_EPOCH: Final = struct.Struct(">i")
_HAS_COORDINATOR_EPOCH: Final = 0x80  # beside the count of batches


class SequencedBatch(NamedTuple):
    """A batch we remember: its first sequence, its record count, its base offset."""

    first_sequence: int
    record_count: int
    base_offset: int

    @property
    def next_sequence(self) -> int:
        """The sequence that follows; after 2^31 - 1 comes 0."""
        return (self.first_sequence + self.record_count) % SEQUENCE_MODULUS


class ActiveProducer(NamedTuple):
    """A producer of a partition, for admin APIs and compaction.

    ``last_batch`` is None when nothing has been appended since the last marker with a new epoch;
    ``coordinator_epoch`` is that of the last marker, -1 if none is known.
    """

    producer_id: int
    epoch: int
    last_batch: SequencedBatch | None
    used_unix_ms: int
    coordinator_epoch: int


class _Producer:
    """One producer id's state in one partition. ``batches`` are its last five, oldest first."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "used_unix_ms")

    def __init__(self, epoch: int, used_unix_ms: int = 0) -> None:
        self.epoch = epoch
        self.used_unix_ms = used_unix_ms
        self.batches: list[SequencedBatch] = []
        self.coordinator_epoch = NO_COORDINATOR_EPOCH


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
        batches = producer.batches
        next_sequence = batches[-1].next_sequence if batches else 0
        if sequence == next_sequence:
            return None
        for batch in producer.batches:
            if batch.first_sequence == sequence and batch.record_count == header.record_count:
                return batch
        msg = (
            f"producer {header.producer_id} sent sequence {sequence}, "
            f"{next_sequence} comes next"
        )
        raise OutOfOrderSequence(msg)

    def check_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        *,
        bumps_epoch: bool,
        is_open: bool,
    ) -> bool:
        """Return whether a marker is new; False when it was appended before.

        ``bumps_epoch``: the epoch of the marker is above that of the transaction's batches
        (KIP-890), so an equal one is that of a marker that is sent again, unless ``is_open``: the
        producer has an open transaction here. Errors: ``ProducerFenced`` for an epoch below the
        least one, ``CoordinatorFenced`` for the marker of an earlier coordinator.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return True
        is_known = bumps_epoch and epoch == producer.epoch
        if epoch < producer.epoch or (is_known and is_open):
            msg = f"a marker of producer {producer_id} has epoch {epoch}, {producer.epoch} is known"
            raise ProducerFenced(msg)
        if coordinator_epoch < producer.coordinator_epoch:
            msg = (
                f"a marker of producer {producer_id} has coordinator epoch {coordinator_epoch}, "
                f"{producer.coordinator_epoch} is known"
            )
            raise CoordinatorFenced(msg)
        return not is_known

    def record_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        now_unix_ms: int,
        open_producers: Container[int] = (),
    ) -> None:
        """Remember an appended marker: with a new epoch, sequences begin at 0 again.

        With the same epoch they go on. ``coordinator_epoch``: -1 leaves the known one.
        """
        producer = self._producers.pop(producer_id, None)
        if producer is None or producer.epoch != epoch:
            producer = _with_epoch(producer, epoch)
        producer.used_unix_ms = now_unix_ms
        producer.coordinator_epoch = max(producer.coordinator_epoch, coordinator_epoch)
        self._producers[producer_id] = producer
        if len(self._producers) > self._producers_max:
            self._forget_idlest(open_producers)

    def record(
        self,
        header: BatchHeader,
        base_offset: int,
        now_unix_ms: int,
        open_producers: Container[int] = (),
    ) -> None:
        """Remember a batch that was appended at ``base_offset``; ``check`` has passed it.

        Of one that is stored with fewer records (some wait for their time), the last offset
        tells how many sequences it had. ``open_producers``: those with an open transaction in the
        partition, which are not forgotten.
        """
        producer = self._producers.pop(header.producer_id, None)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = _with_epoch(producer, header.producer_epoch)
        producer.used_unix_ms = now_unix_ms
        if len(producer.batches) == BATCHES_KEPT:
            del producer.batches[0]
        producer.batches.append(
            SequencedBatch(header.base_sequence, header.last_offset_delta + 1, base_offset)
        )
        self._producers[header.producer_id] = producer
        if len(self._producers) > self._producers_max:
            self._forget_idlest(open_producers)

    def _forget_idlest(self, open_producers: Container[int]) -> None:
        for producer_id in self._producers:
            if producer_id not in open_producers:
                del self._producers[producer_id]
                return

    def expire(self, used_before_unix_ms: int, open_producers: Container[int] = ()) -> int:
        """Forget producers that were last used before that time; return how many.

        Those with an open transaction in the partition stay.
        """
        stale = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.used_unix_ms < used_before_unix_ms and producer_id not in open_producers
        ]
        for producer_id in stale:
            del self._producers[producer_id]
        return len(stale)

    def knows(self, producer_id: int) -> bool:
        """Return whether a producer has state here."""
        return producer_id in self._producers

    def epoch_of(self, producer_id: int) -> int:
        """Return the epoch of a producer, -1 if none is known."""
        producer = self._producers.get(producer_id)
        return NO_EPOCH if producer is None else producer.epoch

    def coordinator_epoch_of(self, producer_id: int) -> int:
        """Return the coordinator epoch of a producer's last marker, -1 if none is known."""
        producer = self._producers.get(producer_id)
        return NO_COORDINATOR_EPOCH if producer is None else producer.coordinator_epoch

    def active(self) -> Iterator[ActiveProducer]:
        """Yield the producers, those first that have been idle longest."""
        for producer_id, producer in self._producers.items():
            yield ActiveProducer(
                producer_id,
                producer.epoch,
                producer.batches[-1] if producer.batches else None,
                producer.used_unix_ms,
                producer.coordinator_epoch,
            )

    def snapshot(self) -> bytes:
        """Return the state as bytes, which ``restore`` reads. Layout: docs/formats.md."""
        out = bytearray()
        for producer_id, producer in self._producers.items():
            batches = producer.batches
            count = len(batches)
            epoch = producer.coordinator_epoch
            if epoch != NO_COORDINATOR_EPOCH:
                count |= _HAS_COORDINATOR_EPOCH
            out += _PRODUCER.pack(producer_id, producer.epoch, producer.used_unix_ms, count)
            if epoch != NO_COORDINATOR_EPOCH:
                out += _COORDINATOR_EPOCH.pack(epoch)
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
            if count & _HAS_COORDINATOR_EPOCH:
                (producer.coordinator_epoch,) = _COORDINATOR_EPOCH.unpack_from(snapshot, at)
                at += _COORDINATOR_EPOCH.size
            for _ in range(count & ~_HAS_COORDINATOR_EPOCH):
                producer.batches.append(SequencedBatch._make(_BATCH.unpack_from(snapshot, at)))
                at += _BATCH.size
            self._producers[producer_id] = producer


def _with_epoch(known: _Producer | None, epoch: int) -> _Producer:
    producer = _Producer(epoch)
    if known is not None:
        producer.coordinator_epoch = known.coordinator_epoch
    return producer


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
