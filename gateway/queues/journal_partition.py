"""One partition of a journal of lanes, which holds one shard and is kept small by itself."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from gateway.broker import Broker
from gateway.coalescer import Part
from gateway.errors import GatewayError, StorageUnavailable
from gateway.partition import Partition
from gateway.queues.journal_entries import Journaled
from gateway.storage import OnDone

SNAPSHOT_BYTES_PER_TICK: Final = 1_048_576  # of a rewrite, before others have their turn


class SnapshotPart(NamedTuple):
    """End of a lane's snapshot, to be appended, and the bytes of the pieces before it."""

    part: Part
    pieces_bytes: int


class SnapshotWriter(Protocol):
    """The journal, as far as one partition of it needs it."""

    def lanes_in(self, partition: Partition) -> Iterable[Journaled]:
        """Return the lanes whose entries are in a partition."""
        ...

    def snapshot_part(self, lane: Journaled) -> SnapshotPart:
        """Return the end of a lane's snapshot; the pieces before it are appended at once."""
        ...

    def append_snapshots(self, parts: Sequence[Part], on_done: OnDone) -> None:
        """Append the ends of snapshots as one. Errors: as ``Coalescer.add_many``."""
        ...

    def put_pending(self) -> None:
        """Add pending entries to the open round: they come before a snapshot."""
        ...

    def seal(self) -> None:
        """Append pending entries now."""
        ...


class JournalPartition:
    """Partition of a journal: when it is too large, a snapshot of each lane replaces it."""

    def __init__(
        self, partition: Partition, broker: Broker, writer: SnapshotWriter, *, room_bytes: int
    ) -> None:
        self.partition = partition
        self.has_lost_piece = False
        """Whether a piece of a snapshot was refused, since a rewrite began."""
        self._broker = broker
        self._writer = writer
        self._room_bytes = room_bytes
        self._live_bytes = 0  # of the last snapshots
        self._rewrite: Iterator[Journaled] | None = None
        self._on_rewritten: Callable[[], None] = _nothing
        self._start_offset = 0

    @property
    def stored_bytes(self) -> int:
        """Bytes of all entries."""
        return self._broker.size_bytes(self.partition)

    def rewrite_when_due(self, on_rewritten: Callable[[], None]) -> None:
        """Start to append snapshots when the entries take too much; truncate what was before."""
        bound = 2 * self._live_bytes + self._room_bytes
        if self._rewrite is not None or self.stored_bytes <= bound:
            return
        self._writer.seal()
        self._live_bytes = 0
        self.has_lost_piece = False
        self._on_rewritten = on_rewritten
        self._start_offset = self.partition.log_end_offset
        self._rewrite = iter(list(self._writer.lanes_in(self.partition)))
        self._rewrite_some(None)

    def stop(self) -> None:
        """End a rewrite; entries stay as they are, which only makes a load longer."""
        self._rewrite = None

    def _rewrite_some(self, error: StorageUnavailable | None) -> None:
        """Append some snapshots; the next follow when these are durable, so as not to flood."""
        if self._rewrite is None:
            return
        if error is not None or self.has_lost_piece:
            self._rewrite = None  # The node stops, or the disk is full: tried again later.
            return
        try:
            if self._append_some(self._rewrite):
                return
        except GatewayError:
            self._rewrite = None
            return
        self._rewrite = None
        self._on_rewritten()
        self.cut(self._start_offset)

    def _append_some(self, lanes: Iterator[Journaled]) -> bool:
        """Append a bounded number of snapshots; return whether there were any."""
        self._writer.put_pending()
        parts: list[Part] = []
        size_bytes = 0
        for lane in lanes:
            if lane.is_gone:
                continue
            part, pieces_bytes = self._writer.snapshot_part(lane)
            parts.append(part)
            size_bytes += part[1].size_bytes + pieces_bytes
            if size_bytes >= SNAPSHOT_BYTES_PER_TICK:
                break
        if parts:
            self._live_bytes += size_bytes
            self._writer.append_snapshots(parts, self._rewrite_some)
        return bool(parts)

    def cut(self, end_offset: int) -> None:
        """Truncate what is before an offset."""
        offset = min(end_offset, self.partition.high_watermark)
        if offset > self.partition.log_start_offset and not self.partition.is_gone:
            self._broker.truncate_before(self.partition, offset, _ignore)


def _nothing() -> None:
    """Do nothing."""


def _ignore(_error: StorageUnavailable | None) -> None:
    """Ignore the result of a truncation: without it the next start only reads more."""
