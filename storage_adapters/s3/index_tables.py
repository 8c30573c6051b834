"""Whole-index operations: create, load and replace."""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, delete, insert, inspect, or_, select, text, update

from gateway.errors import StorageUnavailable
from storage_adapters.formats.log_ranges import LOG_SHIFT
from storage_adapters.s3 import index_owners as owners
from storage_adapters.s3 import index_work as work
from storage_adapters.s3.change import BoundsRow, NewObject, ObjectPart
from storage_adapters.s3.state import Extent, StoredObject
from storage_adapters.s3.tables import (
    BOUNDS,
    INDEX,
    INDEX_FORMAT,
    LIVE,
    OBJECTS,
    TABLES,
)

OBJECTS_PER_FETCH: Final = (
    100  # few enough that no fetch waits longer than a server's idle timeout
)
OBJECTS_PER_INSERT: Final = 100  # of a restore; their blobs are in memory together
# As Extent._make, without counting the values; a start makes one for each partition of each
# # object.
_EXTENT: Final[Callable[[tuple[object, ...]], Extent]] = partial(tuple.__new__, Extent)
_LIVE: Final = select(
    OBJECTS.c.number,
    OBJECTS.c.kind,
    OBJECTS.c.epoch,
    OBJECTS.c.first_sequence,
    OBJECTS.c.next_sequence,
    OBJECTS.c.size_bytes,
    OBJECTS.c.etag,
    OBJECTS.c.changed_unix_ms,
    OBJECTS.c.parts,
).where(OBJECTS.c.state == LIVE)
_OPEN_LOCK: Final = 0x48_47_53_33  # "HGS3": an advisory lock of PostgreSQL


class Loaded(NamedTuple):
    """All live objects with their parts, lowest number first, and all bounds."""

    objects: list[tuple[StoredObject, list[ObjectPart]]]
    bounds: list[BoundsRow]


class IndexChanges(NamedTuple):
    """Objects that are new or lost parts, numbers of those that are live no more, all bounds.

    ``deaths``: of the objects, the transaction in which each lost parts last; 0 for none.
    """

    objects: list[tuple[StoredObject, list[ObjectPart]]]
    deaths: Mapping[int, int]
    gone: Collection[int]
    bounds: list[BoundsRow]


class IndexIdentity(NamedTuple):
    """Identity of the data that an index describes."""

    data_uuid: UUID
    bucket: str
    prefix: str


def make(connection: Connection) -> None:
    """Create missing tables."""
    if (
        connection.dialect.name == "postgresql"
    ):  # two nodes that create them at once would clash
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_OPEN_LOCK})"))
    if inspect(connection).has_table(INDEX.name):
        return
    TABLES.create_all(connection, checkfirst=False)
    connection.execute(insert(INDEX).values(id=0, format=INDEX_FORMAT))
    owners.make_rows(connection)


def check_format(connection: Connection) -> None:
    """Check that the index exists and has a known format. Errors: ``StorageUnavailable``."""
    if not inspect(connection).has_table(INDEX.name):
        raise StorageUnavailable("index: the database has none: no storage in S3 uses it")
    found = connection.scalar(select(INDEX.c.format))
    if found is None or found > INDEX_FORMAT:
        raise StorageUnavailable(
            f"index: it has format {found}, this Headgate knows up to {INDEX_FORMAT}: start the "
            "newer Headgate that wrote it"
        )


def set_owner_of_data(connection: Connection, of: IndexIdentity) -> None:
    """Set the data uuid, once. Errors: ``StorageUnavailable`` when the index has another."""
    connection.execute(update(INDEX).where(INDEX.c.data_uuid.is_(None)).values(**of._asdict()))
    row = connection.execute(select(INDEX)).one()
    found = IndexIdentity(row.data_uuid, row.bucket, row.prefix)
    if found != of:
        raise StorageUnavailable(
            f"the database has the index of the data {found.data_uuid} in bucket "
            f"{found.bucket!r}, prefix {found.prefix!r}, not of {of.data_uuid} in bucket "
            f"{of.bucket!r}, prefix {of.prefix!r}: correct [storage] or [metadata] in the config"
        )


def load(connection: Connection, on_progress: Callable[[], None]) -> Loaded:
    """Return all live objects and bounds. Errors: ``StorageUnavailable`` for damage.

    ``on_progress`` is called now and then while rows arrive.
    """
    query = _LIVE.order_by(OBJECTS.c.number).execution_options(yield_per=OBJECTS_PER_FETCH)
    # `rows` is a cursor of the server, closed on errors too.
    objects: list[tuple[StoredObject, list[ObjectPart]]] = []
    with connection.execute(query) as rows, _no_garbage_collection():
        for some in rows.partitions(OBJECTS_PER_FETCH):
            objects += [_object((number, *fields), blob) for number, *fields, blob in some]
            on_progress()
    return Loaded(objects, _bounds(connection))


def load_changes(connection: Connection, log: int, known: Mapping[int, int]) -> IndexChanges:
    """Return what has changed in other logs than ``log``. Errors: ``StorageUnavailable``.

    ``known``: the objects that were live before, with their ``death``.
    """
    before, behind = log << LOG_SHIFT, (log + 1) << LOG_SHIFT
    next_sequence = OBJECTS.c.next_sequence
    query = select(OBJECTS.c.number, OBJECTS.c.death).where(
        OBJECTS.c.state == LIVE, or_(next_sequence < before, next_sequence >= behind)
    )
    live = {row.number: row.death for row in connection.execute(query)}
    changed = {n: death for n, death in live.items() if known.get(n) != death}
    objects: list[tuple[StoredObject, list[ObjectPart]]] = []
    numbers = sorted(changed)
    for at in range(0, len(numbers), OBJECTS_PER_FETCH):
        some = OBJECTS.c.number.in_(numbers[at : at + OBJECTS_PER_FETCH])
        for number, *fields, blob in connection.execute(_LIVE.where(some)):
            objects.append(_object((number, *fields), blob))
    return IndexChanges(objects, changed, known.keys() - live.keys(), _bounds(connection))


def _bounds(connection: Connection) -> list[BoundsRow]:
    rows = connection.execute(select(BOUNDS).order_by(BOUNDS.c.partition_id))
    return [BoundsRow._make(row) for row in rows]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: among a million live tuples it takes two thirds of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def replace_all(
    connection: Connection,
    objects: Iterable[NewObject],
    bounds: Iterable[BoundsRow],
    of: IndexIdentity,
) -> None:
    """Replace all rows by those found."""
    if connection.dialect.name == "postgresql":  # objects may come slowly from the bucket
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(delete(OBJECTS))
    connection.execute(delete(BOUNDS))
    connection.execute(update(INDEX).values(**of._asdict()))
    remaining = iter(objects)
    while chunk := list(islice(remaining, OBJECTS_PER_INSERT)):
        connection.execute(
            insert(OBJECTS),
            [
                work.live_row(new) | {"number": new.stored.number, "epoch": new.stored.epoch}
                for new in chunk
            ],
        )
    work.put_bounds(connection, bounds)


def _object(fields: tuple[int, ...], blob: bytes) -> tuple[StoredObject, list[ObjectPart]]:
    unpacked = work.parts_in(fields[0], blob)
    partition_ids, extents = zip(*unpacked, strict=True) if unpacked else ((), ())
    parts = list(map(ObjectPart, partition_ids, map(_EXTENT, extents)))
    return StoredObject._make((*fields, frozenset(partition_ids))), parts
