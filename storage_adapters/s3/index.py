"""Index of the objects, in SQL: the live ones and their contents.

Every method waits for the database: call it in a thread, one call at a time. Each method is one
transaction. docs/formats.md section 11 describes the tables.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID, uuid4

from sqlalchemy import (
    Column,
    Connection,
    Delete,
    Engine,
    bindparam,
    delete,
    select,
)
from sqlalchemy.exc import SQLAlchemyError

from gateway.clock import Clock
from gateway.errors import StorageUnavailable
from gateway.sql.checkpoints import Checkpoints
from gateway.sql.engines import bound_statements, make_engine, one_line, reading
from gateway.sql.statement_timeout import Closing, ConnectionTimeout
from storage_adapters.s3 import index_leases as leases
from storage_adapters.s3 import index_owners as owners
from storage_adapters.s3 import index_sweeping as sweeping
from storage_adapters.s3 import index_tables as tables
from storage_adapters.s3 import index_work as work
from storage_adapters.s3.change import BoundsRow, Change, NewObject, ObjectId
from storage_adapters.s3.index_errors import (
    Fenced,
    IndexUnavailable,
    OutcomeUnknown,
    PendingLost,
)
from storage_adapters.s3.index_owners import Claim, LogOwner
from storage_adapters.s3.index_tables import IndexChanges, IndexIdentity, Loaded
from storage_adapters.s3.tables import BOUNDS, DEAD, INDEX, NOBODY, OBJECTS

__all__ = [
    "Fenced",
    "Index",
    "IndexUnavailable",
    "Loaded",
    "OutcomeUnknown",
    "Ownership",
    "PendingLost",
]

MS_MAX: Final = 15_000  # of a transaction; above the waits for locks of ``gateway.sql``

_T = TypeVar("_T")


class Ownership(NamedTuple):
    """Result of a claim. ``next_sequence``: of the log. ``reserved``: numbers for next objects."""

    epoch: int
    next_sequence: int
    reserved: list[int]


class Index:
    """Index of the objects. ``url``: SQLAlchemy's, of SQLite or PostgreSQL.

    ``ms_max`` bounds a transaction, whatever the database does; connecting may take its own time
    (``gateway.sql``) in addition. Errors of every method: ``IndexUnavailable`` when the database
    is away or hangs (nothing is done then), ``OutcomeUnknown`` when it did so at COMMIT.
    """

    def __init__(self, url: str, *, clock: Clock, ms_max: int = MS_MAX) -> None:
        self._url = url
        self._clock = clock
        self._ms_max = ms_max
        self._engine: Engine | None = None
        self._checkpoints: Checkpoints | None = None
        self._watch = ConnectionTimeout()

    def open(self, *, create: bool = True, commits_often: bool = False) -> None:
        """Connect, and create missing tables.

        Readers outside open without ``create``: then nothing is created, and a missing index is an
        error. With ``commits_often`` it runs ``Checkpoints``, too. Errors:
        ``StorageUnavailable``, also for an index of a later format.
        """
        try:
            self._engine = make_engine(self._url, create=create)
        except OSError as error:
            raise IndexUnavailable(f"index: {error}") from error
        if commits_often:
            self._checkpoints = Checkpoints.beside(self._engine)
        self._watch.follow(self._engine)
        bound_statements(self._engine, self._ms_max)
        try:
            _check_dialect(self._engine.dialect.name)
            if create:
                self._write(tables.make)
            self._read(tables.check_format)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        if self._checkpoints is not None:
            self._checkpoints.close()
            self._checkpoints = None
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
            self._watch.leave()

    def cut(self) -> None:
        """Make the transaction under way and every later one fail. In any thread."""
        self._watch.shut()

    def data_uuid(self) -> UUID | None:
        """Return the data uuid of the index, None until it is set."""
        return self._read(lambda connection: connection.scalar(select(INDEX.c.data_uuid)))

    def set_data_uuid(self, data_uuid: UUID, bucket: str, prefix: str) -> None:
        """Set the data uuid. Errors: ``StorageUnavailable`` when the index has another one."""
        of = IndexIdentity(data_uuid, bucket, prefix)
        self._write(lambda connection: tables.set_owner_of_data(connection, of))

    def take_over(self, node_id: int, *, reserve: int) -> Ownership:
        """Become the only writer: from now on commits of all earlier ones are ``Fenced``.

        The epoch is higher than any before; ``reserve`` numbers are reserved.
        """
        return self._claim(
            lambda connection: owners.take_over(connection, node_id, numbers=reserve)
        )

    def join(self, node_id: int, *, reserve: int) -> Ownership:
        """Become a writer beside others: only earlier starts of the node are ``Fenced``.

        The node's log is that of its earlier starts, one that nobody has, or a new one.
        """
        return self._claim(lambda connection: owners.join(connection, node_id, numbers=reserve))

    def fence(self, log: int) -> Ownership:
        """Fence a log's writer: its commits are ``Fenced``, and its log ends at ``next_sequence``.

        One number is reserved under the log's new epoch.
        """
        return self._claim(lambda connection: owners.fence(connection, log))

    def leave(self, epoch: int) -> None:
        """Leave a log that has ended to nobody. Errors: ``Fenced``."""
        self._write(lambda connection: owners.own(connection, epoch, node_id=NOBODY))

    def writers(self) -> list[LogOwner]:
        """Return all logs with their writers, in order."""
        return self._read(owners.log_owners)

    def _claim(self, claim: Callable[[Connection], Claim]) -> Ownership:
        def run(connection: Connection) -> Ownership:
            epoch, next_sequence, numbers = claim(connection)
            reserved = [ObjectId(number, epoch) for number in numbers]
            work.insert_pending(connection, reserved, self._clock.unix_ms())
            return Ownership(epoch, next_sequence, numbers)

        return self._write(run)

    def load(self) -> Loaded:
        """Return all live objects and bounds in one snapshot. Damage is an error."""
        return self._read(lambda connection: tables.load(connection, self._watch.renew))

    def changes(self, log: int, known: Mapping[int, int]) -> IndexChanges:
        """Return what has changed in other logs than ``log``, in one snapshot.

        ``known``: their objects that were live before, with ``deaths`` as it was said then, 0
        after ``load``. Damage is an error.
        """
        return self._read(lambda connection: tables.load_changes(connection, log, known))

    def rows(self, number: int) -> bytes | None:
        """Return an object's packed rows (``formats.object_index.unpack_rows``).

        None for an unknown object; a dead one has its rows until it is forgotten.
        """
        query = select(OBJECTS.c.rows).where(OBJECTS.c.number == number)
        return self._read(lambda connection: connection.scalar(query))

    def commit(self, epoch: int, change: Change) -> list[int]:
        """Commit a change as a whole; return the numbers that it reserved.

        Repeating a change that is done changes nothing (but reserves again). Errors:
        ``Fenced``, ``PendingLost``, ``IndexUnavailable``, ``OutcomeUnknown``.
        """
        packed, unix_ms = work.pack(change), self._clock.unix_ms()
        return self._transaction(
            self._opened(),
            lambda connection: work.apply(connection, epoch, packed, unix_ms),
            self._ms_max + packed.more_ms,
        )

    def committed(self, change: Change) -> bool:
        """Return whether a change of unknown outcome was done. If not, it never will be.

        It waits until the database has ended the transaction in question.
        """
        return self._write(lambda connection: work.is_done(connection, change))

    def sweep_pending(self, epoch: int, *, before_unix_ms: int, keep: frozenset[int]) -> int:
        """Turn pending rows dead that were reserved before a time; return their number.

        ``keep``: numbers that the owner will still use. Errors: ``Fenced``, too.
        """
        now_ms = self._clock.unix_ms()
        return self._write(
            lambda connection: sweeping.sweep_pending(
                connection, epoch, keep, before_unix_ms=before_unix_ms, now_unix_ms=now_ms
            )
        )

    def dead(self, *, before_unix_ms: int, limit: int) -> list[tuple[int, int]]:
        """Return (number, epoch) of objects to delete, lowest number first.

        They died before a time, and no lease is alive that was taken before they died.
        """
        now_ms = self._clock.wall_unix_ms()  # leases end by the clocks of their holders
        return self._read(
            lambda connection: sweeping.dead(
                connection, before_unix_ms=before_unix_ms, now_unix_ms=now_ms, limit=limit
            )
        )

    def forget(self, numbers: Sequence[int]) -> None:
        """Remove the rows of dead objects whose keys are deleted; others stay."""
        statement = delete(OBJECTS).where(OBJECTS.c.state == DEAD)
        self._delete(statement, OBJECTS.c.number, numbers)

    def forget_bounds(self, partition_ids: Sequence[int]) -> None:
        """Remove the bounds of deleted partitions; others stay."""
        statement = delete(BOUNDS).where(BOUNDS.c.is_deleted)
        self._delete(statement, BOUNDS.c.partition_id, partition_ids)

    def take_lease(self, holder: str, *, ttl_ms: int) -> str:
        """Take a lease on every object that dies from now on, for ``ttl_ms``; return its id.

        Take it before ``load``: then all loaded objects stay. ``holder`` is a text for people.
        """
        lease_id = str(uuid4())
        now_ms = self._clock.wall_unix_ms()
        self._write(
            lambda connection: leases.take(
                connection, lease_id, holder, now_ms=now_ms, ttl_ms=ttl_ms
            )
        )
        return lease_id

    def extend_lease(self, lease_id: str, *, ttl_ms: int) -> bool:
        """Extend a lease to ``ttl_ms`` from now on. False: it had ended, objects may be gone."""
        now_ms = self._clock.wall_unix_ms()
        return self._write(
            lambda connection: leases.extend(connection, lease_id, now_ms=now_ms, ttl_ms=ttl_ms)
        )

    def end_lease(self, lease_id: str) -> None:
        """End a lease. One that has ended already is no error."""
        self._write(lambda connection: leases.end(connection, lease_id))

    def restore(  # noqa: PLR0913 - all that an index is made of
        self,
        objects: Iterable[NewObject],
        bounds: Iterable[BoundsRow],
        *,
        data_uuid: UUID,
        bucket: str,
        prefix: str,
        ends: Mapping[int, int],
        next_number: int,
        epoch: int,
        pending: Iterable[ObjectId] = (),
    ) -> None:
        """Replace the whole index by the objects found in the bucket.

        ``epoch`` is the highest found, ``next_number`` one past the highest number, ``ends`` have
        the next sequence of each log. All running nodes are fenced. ``objects`` may be an iterator:
        they are not all held at once. ``pending`` ones were put and never committed.
        """
        of = IndexIdentity(data_uuid, bucket, prefix)

        def replace(connection: Connection) -> None:
            owners.replace_logs(connection, ends, epoch=epoch, next_number=next_number)
            tables.replace_all(connection, objects, bounds, of)
            work.insert_pending(connection, pending, self._clock.unix_ms())

        # Objects may come slowly from the bucket; the caller can cancel that.
        self._transaction(self._opened(), replace, None)

    def _delete(self, statement: Delete, column: Column[Any], numbers: Sequence[int]) -> None:
        if not numbers:
            return
        rows = [{"of": number} for number in numbers]
        self._write(
            lambda connection: connection.execute(
                statement.where(column == bindparam("of")), rows
            )
        )

    def _opened(self) -> Engine:
        if self._engine is None:
            raise IndexUnavailable("index: it is closed")
        return self._engine

    def _write(self, work_: Callable[[Connection], _T]) -> _T:
        """Run ``work_`` as one transaction."""
        return self._transaction(self._opened(), work_, self._ms_max)

    def _read(self, work_: Callable[[Connection], _T]) -> _T:
        """Run the read-only ``work_`` in one snapshot; it waits for no writer."""
        return self._transaction(reading(self._opened()), work_, self._ms_max)

    def _transaction(
        self, engine: Engine, work_: Callable[[Connection], _T], ms_max: int | None
    ) -> _T:
        try:
            with self._watch.limited(ms_max), engine.connect() as connection:
                connection.begin()
                result = work_(connection)
                try:
                    connection.commit()
                except (SQLAlchemyError, OSError) as error:
                    # Whatever the error: the server may have committed before the answer was lost.
                    raise OutcomeUnknown(f"index: at COMMIT: {self._text(error)}") from error
                if self._checkpoints is not None:
                    self._checkpoints.note()
                return result
        except (SQLAlchemyError, OSError, Closing) as error:
            raise IndexUnavailable(f"index: {self._text(error)}") from error

    def _text(self, error: Exception) -> str:
        if self._watch.is_over:
            return f"no answer within {self._ms_max} ms, the connection was cut"
        return one_line(error)


def _check_dialect(name: str) -> None:
    if name not in {"sqlite", "postgresql"}:
        raise StorageUnavailable(f"index: it needs SQLite or PostgreSQL, not {name}")
