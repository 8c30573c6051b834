"""Storage port: appends, reads and recovers batches; offsets are assigned by the broker.

Every method is called on the event loop's thread and, unless it is a coroutine, returns without
waiting for I/O on a disk or a network.

No ``on_done`` runs within ``enqueue``, ``truncate_before`` or ``delete``, neither that of the call
nor one of an earlier call: the caller has not finished its own work. This holds for errors too: a
storage that detects a disk failure within a call runs the callbacks in a later tick of the loop.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from gateway.errors import StorageUnavailable
from gateway.model import Buffer, PartitionIdentity


class Target(NamedTuple):
    """Target of an entry's batch: a partition, and the offset of its first record there."""

    partition_id: int
    base_offset: int


class Entry(NamedTuple):
    """One encoded v2 batch, stored once, for one or more partitions.

    ``batch`` has the base offset of the first target and the leader epoch already (the broker
    stamps them); for the other targets the base offset is filled in on read. All targets of an
    entry have the batch's leader epoch: a batch for partitions of different epochs is an entry for
    each epoch, in one append. ``batch`` does not change after ``enqueue``: the storage may keep a
    reference to it, beyond ``on_done`` too (the S3 storage does, in its cache of the last writes).
    """

    targets: tuple[Target, ...]
    batch: Buffer
    record_count: int
    max_timestamp_unix_ms: int


class Bounds(NamedTuple):
    """Offsets of a log: ``start`` is its first, ``end`` one past the last appended."""

    start: int
    end: int


class StoredHeader(NamedTuple):
    """Stored batch found by a scan: its targets, and the 61 bytes of its header.

    ``is_abort``: it is the marker of an aborted transaction; a control batch without it is that of
    a committed one.
    """

    sequence: int
    targets: tuple[Target, ...]
    header: bytes
    is_abort: bool = False


class Rewritten(NamedTuple):
    """Result of a rewrite: batches that end before ``upto_offset`` were offered to ``keep``.

    ``before_bytes`` and ``after_bytes``: bytes of the partition in the replaced files, and in
    the new ones.
    """

    upto_offset: int
    before_bytes: int
    after_bytes: int


class DiskUsage(NamedTuple):
    """Disk usage in bytes; ``free_bytes`` is the room left in the file system or the bound."""

    log_bytes: int
    settled_bytes: int
    free_bytes: int


class WantedKeys(NamedTuple):
    """Keys that a reader wants: all of ``exact``, and some that begin with a prefix.

    A key that begins with one of ``prefixes`` is wanted if ``wants`` is true for it; ``wants``
    is called in another thread.
    """

    exact: frozenset[bytes]
    prefixes: tuple[bytes, ...] = ()
    wants: Callable[[bytes], bool] = bool


class KeySpans(NamedTuple):
    """Ranges of offsets [start, end) that may hold wanted keys, ascending, not overlapping.

    Offsets from ``end`` on are not covered.
    """

    spans: Sequence[tuple[int, int]]
    end: int


OnDone = Callable[[StorageUnavailable | None], None]
Keep = Callable[[Buffer], Buffer | None]
Drops = Callable[[int, int], bool]


class StorageHost(Protocol):
    """Node that opened a storage, as the storage uses it."""

    @property
    def node_id(self) -> int:
        """The node's number in its cluster."""
        ...

    @property
    def metadata_url(self) -> str:
        """SQLAlchemy URL of the metadata store's database, for an index beside it."""
        ...

    def identify(self, partition_id: int) -> PartitionIdentity:
        """Return a partition's identity, so that the log can be read without the metadata store."""
        ...

    def on_fault(self, error: BaseException) -> None:
        """Stop the node after a failed write or sync (law 4). Called once, on the loop's thread."""
        ...


class StorageAdapter(Protocol):
    """An append-only log per partition.

    Order: offsets of one partition grow by each batch's record count, without gaps.
    Atomic: after a crash all entries of one ``enqueue`` are there, or none.
    Durability: when ``on_done(None)`` runs they survive what the flush policy says; each adapter's
    docstring says what that is.
    Errors: ``StorageUnavailable`` when unsure; then nothing may be acknowledged.
    """

    @property
    def incarnation(self) -> int:
        """Number of times this data was opened for writing, this time included."""
        ...

    @property
    def data_uuid(self) -> UUID | None:
        """UUID of the data; None when nothing outlives the process.

        The metadata store keeps it too, so that neither is opened with the wrong counterpart.
        """
        ...

    @property
    def is_empty(self) -> bool:
        """Whether nothing was stored when it was opened."""
        ...

    @property
    def next_sequence(self) -> int:
        """Sequence of the next entry; ``scan`` begins at such a number."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Enqueued bytes whose ``on_done`` has not run; the broker pauses producers by it."""
        ...

    async def open(self, host: StorageHost) -> None:
        """Recover what is there. Errors: ``StorageUnavailable``, whose text says what to do."""
        ...

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """Append ``entries`` as one atomic append; ``on_done`` runs in the order of calls.

        ``reserved`` lets internal streams use the space that is kept back for them, so that
        acknowledgements and deletes work on a full disk. Errors, before anything is done:
        ``StorageFull`` (no space), ``RunTooLarge`` (more than a segment), ``StorageUnavailable``
        (stopped, or the disk fails).
        """
        ...

    def bounds(self, partition_id: int) -> Bounds:
        """Return the partition's offsets, counting what is enqueued; (0, 0) when it is new."""
        ...

    def read_cached(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer] | None:
        """Return whole batches without waiting for a disk, or None when that is not possible.

        The batches are in order of offset, base offset and leader epoch filled in; the first is the
        first whose last offset is at or after ``start`` (it may begin before), no batch begins at
        or after ``end``. At least one batch is returned where there is one, even above
        ``bytes_max``; the rest stays within it. Below the log start offset, reading starts there.
        """
        ...

    async def read(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        """Return what ``read_cached`` does, after disk reads. Error: ``StorageUnavailable``."""
        ...

    async def base_offset_for_time(
        self, partition_id: int, timestamp_unix_ms: int
    ) -> int | None:
        """Return the base offset of the first batch with a record at or after a time."""
        ...

    def offset_for_size(self, partition_id: int, bytes_max: int) -> int:
        """Return the lowest base offset from which at most ``bytes_max`` bytes follow.

        Where that is only to be said by waiting, the base offset of the file it lies in.
        """
        ...

    def end_offset_for_epoch(self, partition_id: int, leader_epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch that is not above ``leader_epoch``.

        (-1, -1) when none is known; below the log start offset, the log start offset (KIP-101).
        """
        ...

    def size_bytes(self, partition_id: int) -> int:
        """Return the bytes of the partition's batches that are at or after its start offset."""
        ...

    def scan(self, from_sequence: int) -> Iterator[StoredHeader]:
        """Yield the headers of all batches from a sequence on; at start, to rebuild state."""
        ...

    def truncate_before(self, partition_id: int, offset: int, on_done: OnDone) -> None:
        """Move the log start offset up to ``offset``; space is freed when files allow it."""
        ...

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """Forget partitions of a deleted topic; their ids are never used again."""
        ...

    def release_scans_before(self, sequence: int) -> None:
        """Allow the storage to drop headers of lower sequences: ``scan`` will not ask for them.

        Called when the state that a scan rebuilds is stored up to there. Until then, and after each
        start again, the storage keeps all headers.
        """
        ...

    async def close(self) -> None:
        """Write and sync enqueued entries, mark the stop as clean, and close the files."""
        ...


class CompactingStorage(StorageAdapter, Protocol):
    """Storage that can replace stored batches, as compaction needs.

    A storage without these methods is a whole one; topics cannot be compacted on it.
    """

    def settled_offset(self, partition_id: int) -> int:
        """Return the offset up to which ``rewrite`` can reach now; the start when it cannot."""
        ...

    async def rewrite(
        self, partition_id: int, upto_offset: int, keep: Keep, drops: Drops | None = None
    ) -> Rewritten:
        """Replace the batches before ``upto_offset`` by the results of ``keep``; for compaction.

        Batches that end at or before ``upto_offset`` and before ``settled_offset`` go through
        ``keep``, in order, which runs in another thread: it returns the batch, or another one with
        offsets within the same range and a correct CRC, or None when nothing of it stays. Where
        ``drops`` says True to a batch's base offset and bytes, nothing stays of it either, and it
        need not be read. Offsets keep their holes; bounds stay. It happens file by file, lowest
        offsets first: of each all or nothing, also in a crash; in between the storage does other
        work. What was rewritten before may be offered again. The bytes that ``keep`` is given are
        valid during the call only. Waits for other work of this kind. Errors:
        ``StorageUnavailable``, and what ``keep`` raises; then what is left has not changed.
        """
        ...

    def disk_usage(self) -> DiskUsage:
        """Return how much is stored and how much more could be."""
        ...


class LoginStorage(StorageAdapter, Protocol):
    """Storage that keeps beside the log whether everybody must log in.

    A recovery that has nothing but the log finds it there. A storage without this method is a whole
    one.
    """

    async def keep_login_required(self, *, required: bool) -> None:
        """Keep it durably. Errors: ``StorageUnavailable``."""
        ...


class IndexedStorage(StorageAdapter, Protocol):
    """Storage with a key index, so that readers of some keys can skip batches.

    A storage without this method is a whole one: there everything is read
    (``gateway.key_index``).
    """

    async def spans_with_keys(
        self, partition_id: int, keys: WantedKeys, start: int, end: int
    ) -> KeySpans:
        """Return the ranges of offsets from ``start`` to ``end`` that may hold wanted keys.

        No record outside of the spans has a wanted key, or says by its header ``mqtt.topic`` that
        it goes by one; within them there may be none. Where nothing is known, all of it is a span.
        An answer may end before ``end``, but behind ``start``, and holds for as long as nothing is
        appended below its end, through truncation and compaction. ``start`` is below ``end``.
        Errors: ``StorageUnavailable``.
        """
        ...


class ClaimingStorage(StorageAdapter, Protocol):
    """Storage whose data only one process may open at a time.

    A storage without this method is a whole one: it finds out in ``open``.
    """

    def claim(self) -> None:
        """Keep other processes away from the data, until ``close``; called before ``open``.

        The node calls it before it listens anywhere, so that a second start says which process
        has the data and not that a port is taken. Error: ``StorageUnavailable``, with its id.
        """
        ...
