"""The storage ``drawer``: batches in one SQLite file, an index of them in memory.

All SQL runs in one worker thread. What is enqueued while a transaction commits becomes the next
one, so that many appends share a sync. Durability: ``on_done(None)`` runs after a commit with
``synchronous=FULL``; what it tells of survives a power cut.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID, uuid4

from gateway.clock import Clock
from gateway.errors import RunTooLarge, StorageFull, StorageUnavailable
from gateway.model import HEADER_BYTES, MARKER_TYPE_END, Buffer, is_abort_marker, stamp
from gateway.storage import Bounds, Entry, OnDone, StorageHost, StoredHeader, Target
from headgate_lines.config import DrawerConfig
from headgate_lines.shelf import Shelf, Stored

FILE_NAME: Final = "drawer.sqlite"
SCHEMA: Final = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS batches (
    partition_id INTEGER, base_offset INTEGER, end_offset INTEGER,
    sequence INTEGER, place INTEGER, batch BLOB,
    PRIMARY KEY (partition_id, base_offset));
CREATE TABLE IF NOT EXISTS starts (partition_id INTEGER PRIMARY KEY, offset INTEGER);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value);
INSERT OR IGNORE INTO facts VALUES ('incarnation', 0), ('last_sequence', 0);
UPDATE facts SET value = value + 1 WHERE name = 'incarnation';
COMMIT;
"""
INSERT: Final = "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)"
SELECT: Final = (
    "SELECT batch FROM batches WHERE partition_id = ? AND base_offset BETWEEN ? AND ? "
    "ORDER BY base_offset"
)
Statement = tuple[str, tuple[Any, ...]]
T = TypeVar("T")


class Job(NamedTuple):
    """Statements that are done together or not at all; then, what to show and whom to tell."""

    statements: list[Statement]
    batches: list[tuple[int, Stored]]
    size_bytes: int
    on_done: OnDone


class Drawer:
    """A ``gateway.storage.StorageAdapter``."""

    PLUGIN_API = 1
    Config = DrawerConfig

    def __init__(self, config: DrawerConfig, *, data_dir: Path, clock: Clock) -> None:
        del clock  # Nothing here depends on the time.
        self._config = config
        self._file = data_dir / FILE_NAME
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="drawer")
        self._shelves: dict[int, Shelf] = {}
        self._queue: list[Job] = []
        self._commit: asyncio.Future[None] | None = None
        self._fault: StorageUnavailable | None = None
        self._stored_bytes = 0
        self.queued_bytes = 0
        self.incarnation = 0
        self.next_sequence = 1
        self.data_uuid = UUID(int=0)

    @property
    def is_empty(self) -> bool:
        """Nothing was ever stored here."""
        return self.next_sequence == 1

    # --- opening and closing

    async def open(self, host: StorageHost) -> None:
        """Load the index. Errors: ``StorageUnavailable``, when another process has the file."""
        self._host = host
        self._loop = asyncio.get_running_loop()
        await self._in_thread(self._open)

    def _open(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._sql = sqlite3.connect(self._file, timeout=0, isolation_level=None)
        self._sql.executescript(SCHEMA)
        self._sql.execute("INSERT OR IGNORE INTO facts VALUES ('uuid', ?)", (str(uuid4()),))
        facts = dict(self._sql.execute("SELECT name, value FROM facts"))
        self.incarnation = facts["incarnation"]
        self.data_uuid = UUID(facts["uuid"])
        for partition_id, offset in self._sql.execute("SELECT * FROM starts"):
            self._shelves[partition_id] = Shelf(offset)
        rows = self._sql.execute(
            "SELECT partition_id, substr(batch, 1, ?), length(batch), sequence, place "
            "FROM batches ORDER BY partition_id, base_offset",
            (MARKER_TYPE_END,),
        )
        last_sequence = facts["last_sequence"]
        for partition_id, *fields in rows:
            batch = Stored(*fields)
            self._shelves.setdefault(partition_id, Shelf())
            self._show(partition_id, batch)
            last_sequence = max(last_sequence, batch.sequence)
        self.next_sequence = last_sequence + 1

    def release_scans_before(self, sequence: int) -> None:
        """See ``StorageAdapter``: all headers stay, they are columns of the batches' rows."""

    async def close(self) -> None:
        """Commit what is enqueued and let go of the file."""
        while self._commit is not None or (self._queue and self._fault is None):
            self._start_commit()
            if self._commit is not None:
                await asyncio.wait([self._commit])
                await asyncio.sleep(0)  # Let its callbacks run first.
        self._fault = self._fault or StorageUnavailable("the drawer is closed")
        if hasattr(self, "_sql"):
            await self._in_thread(self._sql.close)
        self._thread.shutdown()

    # --- writing

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        """See the port."""
        self._check_open()
        size_bytes = sum(len(entry.batch) * len(entry.targets) for entry in entries)
        if size_bytes > self._config.append_bytes_max:
            msg = f"an append of {size_bytes} bytes; append_bytes_max is less"
            raise RunTooLarge(msg)
        total_bytes = self._stored_bytes + self.queued_bytes + size_bytes
        if not reserved and total_bytes > self._config.stored_bytes_max:
            msg = f"storage.stored_bytes_max ({self._config.stored_bytes_max}) is reached"
            raise StorageFull(msg)
        job = Job([], [], size_bytes, on_done)
        for entry in entries:
            for place, target in enumerate(entry.targets):
                data = _at_offset(entry.batch, target.base_offset)
                batch = Stored(data[:MARKER_TYPE_END], len(data), self.next_sequence, place)
                row = (*target, batch.end_offset, batch.sequence, place, data)
                self._shelves.setdefault(target.partition_id, Shelf()).extend(batch)
                job.statements.append((INSERT, row))
                job.batches.append((target.partition_id, batch))
            self.next_sequence += 1
        self._do(job)

    def truncate_before(self, partition_id: int, offset: int, on_done: OnDone) -> None:
        """See the port."""
        self._check_open()
        shelf = self._shelves.setdefault(partition_id, Shelf())
        self._stored_bytes -= shelf.size_bytes
        shelf.truncate_before(offset)
        self._stored_bytes += shelf.size_bytes
        start = shelf.bounds.start
        keep = ("INSERT OR REPLACE INTO starts VALUES (?, ?)", (partition_id, start))
        self._do(Job([keep, *self._removal(partition_id, start)], [], 0, on_done))

    def delete(self, partition_ids: Sequence[int], on_done: OnDone) -> None:
        """See the port."""
        self._check_open()
        statements: list[Statement] = []
        for partition_id in partition_ids:
            shelf = self._shelves.pop(partition_id, Shelf())
            self._stored_bytes -= shelf.size_bytes
            statements += self._removal(partition_id, shelf.bounds.end)
            statements.append(("DELETE FROM starts WHERE partition_id = ?", (partition_id,)))
        self._do(Job(statements, [], 0, on_done))

    def _removal(self, partition_id: int, offset: int) -> list[Statement]:
        """Remove batches, but remember the last sequence, which must not be given again."""
        remember = "UPDATE facts SET value = ? WHERE name = 'last_sequence'"
        remove = "DELETE FROM batches WHERE partition_id = ? AND end_offset <= ?"
        return [(remember, (self.next_sequence - 1,)), (remove, (partition_id, offset))]

    def _check_open(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _do(self, job: Job) -> None:
        self.queued_bytes += job.size_bytes
        self._queue.append(job)
        # At the end of the loop's turn, so that what comes in one turn is one transaction.
        self._loop.call_soon(self._start_commit)

    def _start_commit(self) -> None:
        if self._commit is None and self._queue and self._fault is None:
            jobs, self._queue = self._queue, []
            self._commit = self._loop.run_in_executor(self._thread, self._transact, jobs)
            self._commit.add_done_callback(partial(self._committed, jobs))

    def _transact(self, jobs: Sequence[Job]) -> None:
        with self._sql:
            self._sql.execute("BEGIN")
            for job in jobs:
                for statement, values in job.statements:
                    self._sql.execute(statement, values)

    def _committed(self, jobs: Sequence[Job], commit: asyncio.Future[None]) -> None:
        self._commit = None
        error = commit.exception()
        if error is not None:
            self._fault = StorageUnavailable(f"{self._file}: {error}")
            self._fault.__cause__ = error
            jobs, self._queue = [*jobs, *self._queue], []
            self._host.on_fault(self._fault)
        for job in jobs:
            self.queued_bytes -= job.size_bytes
            if error is None:
                for partition_id, batch in job.batches:
                    self._show(partition_id, batch)
            job.on_done(self._fault)
        self._start_commit()

    def _show(self, partition_id: int, batch: Stored) -> None:
        """Let a committed batch be read, unless it was deleted meanwhile."""
        shelf = self._shelves.get(partition_id)
        if shelf is not None and shelf.add(batch):
            self._stored_bytes += batch.size_bytes

    # --- reading

    def bounds(self, partition_id: int) -> Bounds:
        """See the port."""
        return self._shelf(partition_id).bounds

    def read_cached(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer] | None:
        """See the port: only that there is nothing is known without the file."""
        found = self._shelf(partition_id).select(start, end, bytes_max=bytes_max)
        return None if found else []

    async def read(
        self, partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        """See the port."""
        found = self._shelf(partition_id).select(start, end, bytes_max=bytes_max)
        if not found:
            return []
        key = (partition_id, found[0].base_offset, found[-1].base_offset)
        rows = await self._in_thread(lambda: self._sql.execute(SELECT, key).fetchall())
        return [batch for (batch,) in rows]

    async def base_offset_for_time(
        self, partition_id: int, timestamp_unix_ms: int
    ) -> int | None:
        """See the port."""
        return self._shelf(partition_id).base_offset_for_time(timestamp_unix_ms)

    def offset_for_size(self, partition_id: int, bytes_max: int) -> int:
        """See the port."""
        return self._shelf(partition_id).offset_for_size(bytes_max)

    def end_offset_for_epoch(self, partition_id: int, leader_epoch: int) -> tuple[int, int]:
        """See the port."""
        return self._shelf(partition_id).end_offset_for_epoch(leader_epoch)

    def size_bytes(self, partition_id: int) -> int:
        """See the port."""
        return self._shelf(partition_id).size_bytes

    def scan(self, from_sequence: int) -> Iterator[StoredHeader]:
        """See the port: from the index, in order of sequence."""
        entries: dict[int, list[tuple[int, Stored]]] = {}
        for partition_id, shelf in self._shelves.items():
            for batch in shelf.batches:
                if batch.sequence >= from_sequence:
                    entries.setdefault(batch.sequence, []).append((partition_id, batch))
        for sequence, found in sorted(entries.items()):
            found.sort(key=lambda one: one[1].place)
            targets = tuple(Target(number, batch.base_offset) for number, batch in found)
            data = found[0][1].data
            yield StoredHeader(sequence, targets, data[:HEADER_BYTES], is_abort_marker(data))

    def _shelf(self, partition_id: int) -> Shelf:
        return self._shelves.get(partition_id) or Shelf()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await self._loop.run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            msg = f"{self._file}: {error}"
            raise StorageUnavailable(msg) from error


def _at_offset(batch: Buffer, base_offset: int) -> bytes:
    """Return a copy of a batch for another of its targets."""
    copy = bytearray(batch)
    epoch_at, epoch_end = 12, 16
    stamp(copy, base_offset, int.from_bytes(copy[epoch_at:epoch_end], signed=True))
    return bytes(copy)
