"""Whole-index operations: create, load and replace."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, delete, insert, inspect, select, text, update

from gateway.errors import StorageUnavailable
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.object_index import unpack_parts
from storage_adapters.s3 import index_work as work
from storage_adapters.s3.change import BoundsRow, NewObject, ObjectPart
from storage_adapters.s3.state import Extent, StoredObject
from storage_adapters.s3.tables import (
    BOUNDS,
    INDEX,
    INDEX_FORMAT,
    LIVE,
    OBJECTS,
    OWNERS,
    SLOT,
    TABLES,
)

OBJECTS_PER_FETCH: Final = (
    100  # few enough that no fetch waits longer than a server's idle timeout
)
OBJECTS_PER_INSERT: Final = 100  # of a restore; their blobs are in memory together
# As Extent._make, without counting the values; a start makes one for each partition of each
# # object.
_EXTENT: Final[Callable[[tuple[object, ...]], Extent]] = partial(tuple.__new__, Extent)
_OPEN_LOCK: Final = 0x48_47_53_33  # "HGS3": an advisory lock of PostgreSQL


class Loaded(NamedTuple):
    """All live objects with their parts, lowest number first, and all bounds."""

    objects: list[tuple[StoredObject, list[ObjectPart]]]
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
    connection.execute(
        insert(OWNERS).values(
            slot=SLOT, node_id=0, epoch=0, next_sequence=1, next_number=1, deaths=0
        )
    )


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


def raise_format(connection: Connection) -> None:
    """Note that objects of this format are about to be written; older versions refuse them."""
    connection.execute(
        update(INDEX).where(INDEX.c.format < INDEX_FORMAT).values(format=INDEX_FORMAT)
    )


def load(connection: Connection, on_progress: Callable[[], None]) -> Loaded:
    """Return all live objects and bounds. Errors: ``StorageUnavailable`` for damage.

    ``on_progress`` is called now and then while rows arrive.
    """
    query = (
        select(
            OBJECTS.c.number,
            OBJECTS.c.kind,
            OBJECTS.c.epoch,
            OBJECTS.c.first_sequence,
            OBJECTS.c.next_sequence,
            OBJECTS.c.size_bytes,
            OBJECTS.c.etag,
            OBJECTS.c.changed_unix_ms,
            OBJECTS.c.parts,
        )
        .where(OBJECTS.c.state == LIVE)
        .order_by(OBJECTS.c.number)
        .execution_options(yield_per=OBJECTS_PER_FETCH)
    )
    # `rows` is a cursor of the server, closed on errors too.
    objects: list[tuple[StoredObject, list[ObjectPart]]] = []
    with connection.execute(query) as rows, _no_garbage_collection():
        for some in rows.partitions(OBJECTS_PER_FETCH):
            objects += [_object((number, *fields), blob) for number, *fields, blob in some]
            on_progress()
    bounds = connection.execute(select(BOUNDS).order_by(BOUNDS.c.partition_id))
    return Loaded(objects, [BoundsRow._make(row) for row in bounds])


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


def replace_owner(
    connection: Connection, *, epoch: int, next_sequence: int, next_number: int
) -> None:
    """Fence a running node and continue after the numbers found; numbers never go back."""
    now = work.owner(connection, lock=True)
    connection.execute(
        update(OWNERS)
        .where(OWNERS.c.slot == SLOT)
        .values(
            epoch=max(now.epoch + 1, epoch),
            next_sequence=next_sequence,
            next_number=max(now.next_number, next_number),
            deaths=now.deaths + 1,
        )
    )


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
    try:
        unpacked = unpack_parts(blob, fields[0])
    except (Damaged, TooNew) as error:
        raise StorageUnavailable(
            f"index: object {fields[0]}: {error}: rebuild the index with "
            "`headgate recover-metadata`"
        ) from error
    partition_ids, extents = zip(*unpacked, strict=True) if unpacked else ((), ())
    parts = list(map(ObjectPart, partition_ids, map(_EXTENT, extents)))
    return StoredObject._make((*fields, frozenset(partition_ids))), parts
