"""The index of the objects, in SQL: which are live, and what is in them.

Everything waits for the database: call it in a thread, one call at a time. Each method is one
transaction. docs/formats.md section 11 describes the tables.
"""

from collections.abc import Callable, Iterable, Sequence
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
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from gateway.clock import Clock
from gateway.errors import StorageUnavailable
from gateway.sql.checkpoints import Checkpoints
from gateway.sql.engines import bound_statements, make_engine, one_line, reading
from gateway.sql.watch import Closing, Watch
from storage_adapters.s3 import index_leases as leases
from storage_adapters.s3 import index_sweeping as sweeping
from storage_adapters.s3 import index_tables as tables
from storage_adapters.s3 import index_work as work
from storage_adapters.s3.change import BoundsRow, Change, NewObject
from storage_adapters.s3.index_errors import (
    Fenced,
    IndexUnavailable,
    OutcomeUnknown,
    PendingLost,
)
from storage_adapters.s3.index_tables import IndexOf, Loaded
from storage_adapters.s3.tables import (
    BOUNDS,
    DEAD,
    INDEX,
    OBJECTS,
    OWNERS,
    SLOT,
)

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
    """What a node has taken over. ``reserved``: numbers for its next objects."""

    epoch: int
    next_sequence: int
    reserved: list[int]


class Index:
    """See the module. ``url``: SQLAlchemy's, of SQLite or PostgreSQL.

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
        self._watch = Watch()

    def open(self, *, create: bool = True, commits_often: bool = False) -> None:
        """Connect, and make the tables where there are none.

        Readers outside open without ``create``: then nothing is made, and an index that is not
        there is an error. Who ``commits_often`` has ``Checkpoints`` beside. Errors:
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
        """Let go of the connection. A second time does nothing."""
        if self._checkpoints is not None:
            self._checkpoints.close()
            self._checkpoints = None
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
            self._watch.leave()

    def cut(self) -> None:
        """Let the transaction under way fail, and every later one. In any thread."""
        self._watch.shut()

    def data_uuid(self) -> UUID | None:
        """Return whose index this is, None while nobody has said so."""
        return self._read(lambda connection: connection.scalar(select(INDEX.c.data_uuid)))

    def set_data_uuid(self, data_uuid: UUID, bucket: str, prefix: str) -> None:
        """Say whose index this is. Errors: ``StorageUnavailable`` when it is another's already."""
        of = IndexOf(data_uuid, bucket, prefix)
        self._write(lambda connection: tables.set_owner_of_data(connection, of))

    def take_over(self, node_id: int, *, reserve: int) -> Ownership:
        """Become the owner: from now on commits of earlier owners are ``Fenced``.

        The epoch is one higher than any before; ``reserve`` numbers are reserved.
        """

        def take(connection: Connection) -> Ownership:
            connection.execute(
                update(OWNERS)
                .where(OWNERS.c.slot == SLOT)
                .values(
                    node_id=node_id,
                    epoch=OWNERS.c.epoch + 1,
                    next_number=OWNERS.c.next_number + reserve,
                )
            )
            now = work.owner(connection)
            reserved = work.reserve(connection, now.epoch, reserve, self._clock.unix_ms())
            return Ownership(now.epoch, now.next_sequence, reserved)

        return self._write(take)

    def load(self) -> Loaded:
        """Return everything that is live, as of one moment. What is damaged is an error."""
        return self._read(lambda connection: tables.load(connection, self._watch.renew))

    def rows(self, number: int) -> bytes | None:
        """Return where an object's batches are (``formats.object_index.unpack_rows``).

        None when there is no such object; one that is dead has its rows until it is forgotten.
        """
        query = select(OBJECTS.c.rows).where(OBJECTS.c.number == number)
        return self._read(lambda connection: connection.scalar(query))

    def commit(self, epoch: int, change: Change) -> list[int]:
        """Do all of a change, or nothing; return the numbers that it reserved.

        Doing a change again that is done already changes nothing (but reserves again). Errors:
        ``Fenced``, ``PendingLost``, ``IndexUnavailable``, ``OutcomeUnknown``.
        """
        packed, unix_ms = work.pack(change), self._clock.unix_ms()
        return self._transaction(
            self._opened(),
            lambda connection: work.apply(connection, epoch, packed, unix_ms),
            self._ms_max + packed.more_ms,
        )

    def committed(self, change: Change) -> bool:
        """Say whether a change whose outcome is unknown was done. If not, it never will be.

        It waits until the database has ended the transaction in question.
        """
        return self._write(lambda connection: work.is_done(connection, change))

    def sweep_pending(self, epoch: int, *, before_unix_ms: int, keep: frozenset[int]) -> int:
        """Turn pending rows dead that were reserved before a time; return how many.

        ``keep``: numbers that the owner still means to use. Errors: ``Fenced``, too.
        """
        now_ms = self._clock.unix_ms()
        return self._write(
            lambda connection: sweeping.sweep_pending(
                connection, epoch, keep, before_unix_ms=before_unix_ms, now_unix_ms=now_ms
            )
        )

    def dead(self, *, before_unix_ms: int, limit: int) -> list[tuple[int, int]]:
        """Return (number, epoch) of objects to delete, the lowest numbers first.

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
        """Keep every object that dies from now on, for ``ttl_ms``; return the lease's id.

        Take it before ``load``: all that was loaded then stays. ``holder`` is for people to read.
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
        """Let a lease live ``ttl_ms`` from now on. False: it was over, objects may be gone."""
        now_ms = self._clock.wall_unix_ms()
        return self._write(
            lambda connection: leases.extend(connection, lease_id, now_ms=now_ms, ttl_ms=ttl_ms)
        )

    def end_lease(self, lease_id: str) -> None:
        """Give a lease back. One that is over already is no error."""
        self._write(lambda connection: leases.end(connection, lease_id))

    def restore(  # noqa: PLR0913 - all that an index is made of
        self,
        objects: Iterable[NewObject],
        bounds: Iterable[BoundsRow],
        *,
        data_uuid: UUID,
        bucket: str,
        prefix: str,
        next_sequence: int,
        next_number: int,
        epoch: int,
    ) -> None:
        """Replace the whole index by what was found in the bucket.

        ``epoch`` is the highest that was found, ``next_number`` one past the highest number. A node
        that runs meanwhile is fenced. ``objects`` may be an iterator: not all are held at once.
        """
        of = IndexOf(data_uuid, bucket, prefix)

        def replace(connection: Connection) -> None:
            tables.replace_owner(
                connection,
                epoch=epoch,
                next_sequence=next_sequence,
                next_number=next_number,
            )
            tables.replace_all(connection, objects, bounds, of)

        # Objects may come from the bucket, slowly, and he who waits for them can end it.
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
        """Do ``work_`` as one transaction."""
        return self._transaction(self._opened(), work_, self._ms_max)

    def _read(self, work_: Callable[[Connection], _T]) -> _T:
        """Do ``work_``, which only reads, as of one moment; it waits for no writer."""
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
                    # Whatever it says: the server may have done it before it could not say so.
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
