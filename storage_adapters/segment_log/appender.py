"""Appends: they become entries of the active segment.

Space is reserved before an offset exists: the active segment and, from its middle on, the next
one have their space on the disk, and the index of a segment counts as if it were its footer
already. An append never spans segments. Everything here is synchronous and on the loop's
thread.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from gateway.descriptors import NoDescriptors
from gateway.errors import RunTooLarge, StorageFull
from gateway.model import CONTROL_MASK, LEADER_EPOCH_AT, PartitionIdentity
from gateway.storage import Entry, OnDone, StorageHost
from storage_adapters.formats.bodies import Introduction, encode_introduction
from storage_adapters.formats.entry import (
    BATCH_PEEK,
    ENTRY_HEADER_BYTES,
    FLAG_LAST,
    KIND_PARTITION,
    TARGET_BYTES,
    control_flags,
    encode_batch_front,
    encode_entry,
)
from storage_adapters.formats.footer import (
    ALIGNMENT_BYTES,
    ID_BYTES,
    ROW_BYTES,
    TABLE_ROW_BYTES,
    TRAILER_BYTES,
)
from storage_adapters.formats.segment import SEGMENT_HEADER_BYTES
from storage_adapters.segment_log.catalog import Catalog, PartitionState
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.index import LiveIndex, LivePart
from storage_adapters.segment_log.segment_files import SegmentMaker
from storage_adapters.segment_log.segments import Segment
from storage_adapters.segment_log.wal_thread import Chunk
from storage_adapters.segment_log.writer import Writer

_FOOTER_FIXED_BYTES: Final = TRAILER_BYTES + 3 * ALIGNMENT_BYTES
_PART_BYTES: Final = TABLE_ROW_BYTES + ID_BYTES
_ENTRY_BYTES: Final = ENTRY_HEADER_BYTES + TARGET_BYTES + ROW_BYTES  # with one target
_HOUSEKEEPING_BYTES_MAX: Final = 1_048_576
_HOUSEKEEPING_DIVISOR: Final = 16


class UnlistedPartition(NamedTuple):
    """A partition that the active segment does not list yet."""

    state: PartitionState
    identity: PartitionIdentity
    introduction: bytes


class Appender:
    """Writer's end of the active segment: the position and sequence of the next entry.

    ``tail``: the position. ``footer_bytes``: the footer's size by now. Their sum stays below
    one of three limits: the lowest for clients' appends (it leaves ``reserve_bytes`` until the
    next segment has its space), one for internal streams, the highest for truncations and
    deletions, which free space.
    """

    def __init__(  # noqa: PLR0913  # The parts that an append passes.
        self,
        *,
        config: SegmentLogConfig,
        catalog: Catalog,
        writer: Writer,
        maker: SegmentMaker,
        host: StorageHost,
        active: Segment,
        next_sequence: int,
        on_close: Callable[[Segment], None],
    ) -> None:
        self._catalog = catalog
        self._writer = writer
        self._maker = maker
        self._host = host
        self._on_close = on_close
        self._reserve_bytes = config.reserve_bytes
        self._segment_bytes = config.segment_bytes
        housekeeping = config.segment_bytes // _HOUSEKEEPING_DIVISOR
        self._housekeeping_bytes = min(housekeeping, _HOUSEKEEPING_BYTES_MAX)
        self._append_bytes_max = (
            config.segment_bytes - _FOOTER_FIXED_BYTES - self._housekeeping_bytes
        )
        self._sealed: deque[Segment] = deque()
        self.next_sequence = next_sequence
        self._activate(active)

    def _activate(self, segment: Segment) -> None:
        assert segment.live is not None
        segment.first_sequence = segment.next_sequence = self.next_sequence
        self.active = segment
        self._live: LiveIndex = segment.live
        self._seed = segment.header.seed
        self._incarnation = segment.header.incarnation
        self._tail = SEGMENT_HEADER_BYTES
        self._footer_bytes = 0
        self._limit_max = segment.disk_bytes - _FOOTER_FIXED_BYTES
        self._limit_reserved = self._limit_max - self._housekeeping_bytes
        self._prepare_at = segment.disk_bytes // 2
        # On a full disk a start makes a short first segment, for truncations and deletions only.
        is_short = segment.disk_bytes < self._segment_bytes
        self._limit = 0 if is_short else self._limit_reserved - self._reserve_bytes
        self._catalog.add(segment)

    # Appending.

    def append(self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool) -> None:
        """Turn ``entries`` into one atomic append. See ``StorageAdapter.enqueue``."""
        need, unlisted = self._measure(entries)
        limit = self._limit_reserved if reserved else self._limit
        if self._tail + self._footer_bytes + need > limit and self._make_room(need, reserved):
            need, unlisted = self._measure(entries)  # A new segment lists none of them.
            if self._tail + self._footer_bytes + need > self._limit_max:
                raise self._too_large(need)
        chunk = self._chunk()
        size_bytes = self._introduce(unlisted, chunk) if unlisted else 0
        size_bytes += self._add_batches(entries, chunk)
        self._finish(on_done, size_bytes)

    def append_internal(
        self, kind: int, body: bytes, unlisted: list[UnlistedPartition], on_done: OnDone
    ) -> None:
        """Append one internal entry. Errors: those of ``_make_room``, when the reserve is used."""
        need = ENTRY_HEADER_BYTES + len(body) + self._unlisted_bytes(unlisted)
        used = self._tail + self._footer_bytes
        if used + need > self._limit_max:
            self._make_room(need, reserved=True)
        chunk = self._chunk()
        size_bytes = self._introduce(unlisted, chunk) if unlisted else 0
        self._finish(on_done, size_bytes + self._add_entry(kind, body, FLAG_LAST, chunk))

    def _measure(self, entries: Sequence[Entry]) -> tuple[int, list[UnlistedPartition] | None]:
        """Return the most bytes that the append and its part of the footer need."""
        states, active = self._catalog.states, self.active
        need = 0
        unknown: dict[int, None] | None = None
        for targets, batch, _, _ in entries:
            need += _ENTRY_BYTES + len(batch)
            if len(targets) > 1:
                need += (len(targets) - 1) * (TARGET_BYTES + ROW_BYTES)
            for partition_id, _ in targets:
                state = states.get(partition_id)
                if state is None or state.segment is not active:
                    unknown = unknown or {}
                    unknown[partition_id] = None
        if unknown is None:
            return need, None
        unlisted = self.unlisted(unknown)
        return need + self._unlisted_bytes(unlisted), unlisted

    def unlisted(self, partition_ids: Iterable[int]) -> list[UnlistedPartition]:
        """Return those of the partitions that the active segment does not list yet."""
        unlisted = []
        for partition_id in partition_ids:
            state = self._catalog.state(partition_id)
            if state.segment is self.active:
                continue
            identity = self._host.identify(partition_id)
            introduction = Introduction(identity, state.start, state.end)
            unlisted.append(
                UnlistedPartition(state, identity, encode_introduction(introduction))
            )
        return unlisted

    @staticmethod
    def _unlisted_bytes(unlisted: list[UnlistedPartition]) -> int:
        names = sum(len(partition.introduction) for partition in unlisted)
        return ENTRY_HEADER_BYTES + 2 * names + len(unlisted) * _PART_BYTES

    def _chunk(self) -> Chunk:
        chunks = self._writer.open_group.chunks
        if not chunks or chunks[-1].segment is not self.active:
            chunks.append(Chunk(self.active, self._tail))
        return chunks[-1]

    def _introduce(self, unlisted: list[UnlistedPartition], chunk: Chunk) -> int:
        for state, identity, introduction in unlisted:
            self.adopt(state, identity)
            self._footer_bytes += len(introduction)
        body = b"".join([partition.introduction for partition in unlisted])
        return self._add_entry(KIND_PARTITION, body, 0, chunk)

    def adopt(self, state: PartitionState, identity: PartitionIdentity | None) -> LivePart:
        """Give a partition its place in the active segment's index."""
        if state.part is not None and state.segment is self.active:
            return state.part
        part = LivePart(state.partition_id, state.start, state.end, identity)
        state.part, state.segment = part, self.active
        self._live.parts[state.partition_id] = part
        self._footer_bytes += _PART_BYTES
        return part

    def _add_entry(self, kind: int, body: bytes, flags: int, chunk: Chunk) -> int:
        entry = encode_entry(
            kind,
            body,
            sequence=self.next_sequence,
            incarnation=self._incarnation,
            durable_sequence=self._writer.durable_sequence,
            flags=flags,
            seed=self._seed,
        )
        chunk.buffers.append(entry)
        self.next_sequence += 1
        self._tail += len(entry)
        return len(entry)

    def _add_batches(self, entries: Sequence[Entry], chunk: Chunk) -> int:
        states = self._catalog.states
        buffers, rows = chunk.buffers, self._writer.open_group.rows
        tail, sequence = self._tail, self.next_sequence
        durable_sequence = self._writer.durable_sequence
        remaining = len(entries)
        for targets, batch, record_count, timestamp_unix_ms in entries:
            remaining -= 1
            leader_epoch, _, batch_crc, attributes = BATCH_PEEK.unpack_from(
                batch, LEADER_EPOCH_AT
            )
            flags = 0 if remaining else FLAG_LAST
            if attributes & CONTROL_MASK:
                flags |= control_flags(batch)
            front = encode_batch_front(
                targets,
                len(batch),
                batch_crc,
                leader_epoch,
                record_count,
                timestamp_unix_ms,
                sequence,
                self._incarnation,
                durable_sequence,
                flags,
                self._seed,
            )
            buffers.append(front)
            buffers.append(batch)
            sequence += 1
            tail += len(front)
            place = tail + (len(batch) << 32)
            tail += len(batch)
            span = record_count + (leader_epoch << 32)
            for partition_id, base_offset in targets:
                state = states[partition_id]
                part = state.part
                assert part is not None
                assert base_offset == state.end, "offsets of a partition are dense"
                state.end = base_offset + record_count
                rows.append((part, base_offset, timestamp_unix_ms, place, span))
            count = len(targets)
            if count > 1:
                self._live.repeated_bytes += (count - 1) * len(batch)
            self._footer_bytes += ROW_BYTES * count
        size_bytes = tail - self._tail
        self._tail, self.next_sequence = tail, sequence
        return size_bytes

    def _finish(self, on_done: OnDone, size_bytes: int) -> None:
        writer = self._writer
        group = writer.open_group
        group.callbacks.append(on_done)
        group.size_bytes += size_bytes
        group.next_sequence = self.next_sequence
        writer.queued_bytes += size_bytes
        writer.schedule()
        if self._tail > self._prepare_at:
            self._prepare()

    # Space.

    def _prepare(self) -> None:
        """Begin to make the next segment; once it has its space, no reserve is kept back."""
        self._maker.begin(self.active.number, self.next_sequence)
        if self._maker.is_secured:
            self._limit = self._limit_reserved

    def _make_room(self, need: int, reserved: bool) -> bool:  # noqa: FBT001
        """Make room for ``need`` bytes; True when that took a new segment.

        Errors: ``RunTooLarge``, ``StorageFull``, ``NoDescriptors``, ``StorageUnavailable`` when
        the next segment could not be made.
        """
        if SEGMENT_HEADER_BYTES + need > self._append_bytes_max:
            raise self._too_large(need)
        if self._secure_fits(need, reserved):
            return False
        if not self._maker.is_secured:
            if self._writer.fault is not None:
                raise self._writer.fault
            if self._maker.is_short_of_descriptors:
                raise NoDescriptors("no file descriptor left for another segment")
            raise StorageFull("no space on the disk for another segment")
        self._roll()
        if not self._secure_fits(need, reserved):
            raise StorageFull("no space on the disk beside what is kept back")
        return True

    def _too_large(self, need: int) -> RunTooLarge:
        most = self._append_bytes_max - SEGMENT_HEADER_BYTES
        return RunTooLarge(f"an append takes {need} bytes; a segment has room for {most}")

    def _secure_fits(self, need: int, reserved: bool) -> bool:  # noqa: FBT001
        self._maker.begin(self.active.number, self.next_sequence)
        if self._maker.secure():
            self._limit = self._limit_reserved
        limit = self._limit_reserved if reserved else self._limit
        return self._tail + self._footer_bytes + need <= limit

    def _roll(self) -> None:
        """Switch to the next segment; this one is closed once its last entry is written."""
        self._seal()
        self._activate(self._maker.take())

    @property
    def active_bytes(self) -> int:
        """Bytes of entries in the active segment."""
        return self._tail - SEGMENT_HEADER_BYTES

    def close_active(self) -> bool:
        """Switch to the next segment if it has its space; otherwise begin to make it.

        Return False, too, while any write is under way.
        """
        self._maker.begin(self.active.number, self.next_sequence)
        if self._writer.queued_bytes or not self._maker.is_secured:
            return False
        self._roll()
        self.close_written()
        return True

    def _seal(self) -> None:
        self.active.entries_end = self._tail
        self.active.next_sequence = self.next_sequence
        self._sealed.append(self.active)

    def seal_last(self) -> None:
        """Seal the active segment of a log that is being closed, so that it gets its footer."""
        self._seal()
        self.close_written()

    def close_written(self) -> None:
        """Close the sealed segments whose last entry is written."""
        while self._sealed:
            if self._sealed[0].next_sequence > self._writer.written_sequence + 1:
                return
            self._on_close(self._sealed.popleft())
