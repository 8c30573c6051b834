"""Statements of one commit: one for each kind of change, never one per partition.

All of it runs within a transaction whose first statement is ``own``: that statement changes the row
of the writer's log, and so waits until no other transaction has, and keeps others waiting until the
end. Under READ COMMITTED each later statement sees what those others committed.

Writers lock rows in one order, so that they never wait for each other in a circle: the row of their
log, the common row, objects, bounds by partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from sqlalchemy import Connection, bindparam, case, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gateway.errors import StorageUnavailable
from storage_adapters.formats.damage import Damaged, TooNew
from storage_adapters.formats.object_index import PlainPart, pack_parts, unpack_parts
from storage_adapters.s3.change import BoundsRow, Change, NewObject, ObjectId
from storage_adapters.s3.index_errors import PendingLost
from storage_adapters.s3.index_owners import draw, log_owners, own
from storage_adapters.s3.tables import BOUNDS, DEAD, LIVE, OBJECTS, PENDING

IN_LIST_MAX = 1_000  # values in one IN (...): databases bound the parameters of a statement


class PackedChange(NamedTuple):
    """A change with the blobs of its new objects packed before any row is locked."""

    change: Change
    live_rows: list[dict[str, object]]

    @property
    def more_ms(self) -> int:
        """Additional time that it may take: 1 ms for each row and KiB of blobs."""
        rows, change = self.live_rows, self.change
        blobs = [value for row in rows for value in row.values() if isinstance(value, bytes)]
        touched = len(rows) + len(change.gone) + len(change.shrunk)
        return touched + sum(map(len, blobs)) // 1_024


def pack(change: Change) -> PackedChange:
    """Pack a change for ``apply``."""
    rows = [live_row(new) | {"of": new.stored.number} for new in change.added]
    return PackedChange(change, rows)


def apply(connection: Connection, epoch: int, packed: PackedChange, unix_ms: int) -> list[int]:
    """Apply a change; return the numbers that it reserved. Errors: see ``Index.commit``."""
    change = packed.change
    if change.next_sequence >= 0:
        own(connection, epoch, next_sequence=change.next_sequence)
    else:
        own(connection, epoch)
    death = 0
    numbers: list[int] = []
    if change.gone or change.shrunk or change.reserve:
        has_deaths = bool(change.gone or change.shrunk)
        common = draw(connection, numbers=change.reserve, deaths=int(has_deaths))
        death = common.deaths
        numbers = list(range(common.next_number - change.reserve, common.next_number))
    if change.added:
        _turn_live(connection, epoch, packed.live_rows)
    bury(connection, change.gone, state=LIVE, death=death, unix_ms=unix_ms)
    if change.shrunk:
        _shrink(connection, dict(change.shrunk), death)
    put_bounds(connection, change.bounds)
    insert_pending(connection, [ObjectId(number, epoch) for number in numbers], unix_ms)
    return numbers


def insert_pending(connection: Connection, objects: Iterable[ObjectId], unix_ms: int) -> None:
    """Insert rows of objects that are not committed."""
    rows = [_pending(number, epoch, unix_ms) for number, epoch in objects]
    if rows:
        connection.execute(insert(OBJECTS), rows)


def bury(
    connection: Connection, numbers: Sequence[int], *, state: int, death: int, unix_ms: int
) -> None:
    """Turn rows in ``state`` dead; rows in another state stay."""
    if not numbers:
        return
    statement = (
        update(OBJECTS)
        .where(OBJECTS.c.number == bindparam("of"), OBJECTS.c.state == state)
        .values(state=DEAD, death=death, changed_unix_ms=unix_ms)
    )
    connection.execute(statement, [{"of": number} for number in numbers])


def states(connection: Connection, numbers: Sequence[int]) -> dict[int, int]:
    """Return the states of objects that have a row."""
    found: dict[int, int] = {}
    for at in range(0, len(numbers), IN_LIST_MAX):
        query = select(OBJECTS.c.number, OBJECTS.c.state).where(
            OBJECTS.c.number.in_(numbers[at : at + IN_LIST_MAX])
        )
        found.update((number, state) for number, state in connection.execute(query))
    return found


def is_done(connection: Connection, change: Change) -> bool:
    """Return whether a change was committed, after every transaction on a log's row has ended.

    A change of bounds alone counts as not done: repeating it changes nothing.
    """
    log_owners(connection, lock=True)
    if change.added:
        numbers = [new.stored.number for new in change.added]
        found = states(connection, numbers)
        return all(found.get(number) == LIVE for number in numbers)
    if change.gone:
        return LIVE not in states(connection, change.gone).values()
    return False


def put_bounds(connection: Connection, bounds: Iterable[BoundsRow]) -> None:
    """Insert rows of bounds, or move them up: a log start never goes back, nor does a deletion.

    A writer that merges a partition's batches may know an older log start than its owner.
    """
    rows = [
        {
            "partition_id": row.partition_id,
            "start_offset": row.start,
            "below_bytes": row.below_bytes,
            "is_deleted": row.is_deleted,
        }
        for row in sorted(bounds)
    ]
    if not rows:
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(BOUNDS)
    new, old = statement.excluded, BOUNDS.c
    is_older = new.start_offset < old.start_offset
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[BOUNDS.c.partition_id],
            set_={
                "start_offset": case((is_older, old.start_offset), else_=new.start_offset),
                "below_bytes": case((is_older, old.below_bytes), else_=new.below_bytes),
                "is_deleted": or_(old.is_deleted, new.is_deleted),
            },
        ),
        rows,
    )


def parts_in(number: int, blob: bytes) -> list[PlainPart]:
    """Return an object's parts. Errors: ``StorageUnavailable`` for damage."""
    try:
        return unpack_parts(blob, number)
    except (Damaged, TooNew) as error:
        raise StorageUnavailable(
            f"index: object {number}: {error}: rebuild the index with "
            "`headgate recover-metadata`"
        ) from error


def live_row(new: NewObject) -> dict[str, object]:
    """Return the columns of a live object, except its number and epoch."""
    stored = new.stored
    return {
        "state": LIVE,
        "death": 0,
        "kind": stored.kind,
        "first_sequence": stored.first_sequence,
        "next_sequence": stored.next_sequence,
        "size_bytes": stored.size_bytes,
        "etag": stored.etag,
        "changed_unix_ms": stored.changed_unix_ms,
        "parts": pack_parts(new.parts),
        "rows": new.rows,
    }


def _turn_live(connection: Connection, epoch: int, rows: list[dict[str, object]]) -> None:
    statement = (
        update(OBJECTS)
        .where(
            OBJECTS.c.number == bindparam("of"),
            OBJECTS.c.epoch == epoch,
            OBJECTS.c.state == PENDING,
        )
        .values({name: bindparam(name) for name in rows[0] if name != "of"})
    )
    if connection.execute(statement, rows).rowcount == len(rows):
        return
    # Not every driver counts the rows of many updates, and a repeated change finds its rows live:
    # # each number belongs to one object, so that is equivalent.
    numbers = [cast("int", row["of"]) for row in rows]
    found = states(connection, numbers)
    lost = [number for number in numbers if found.get(number) != LIVE]
    if lost:
        raise PendingLost(lost[0])


def _shrink(connection: Connection, lost: Mapping[int, frozenset[int]], death: int) -> None:
    """Take partitions out of live objects: read, and written, under the lock of their rows.

    By ``death``, which is higher each time, other nodes see that an object has changed.
    """
    query = (
        select(OBJECTS.c.number, OBJECTS.c.parts)
        .where(OBJECTS.c.number.in_(sorted(lost)), OBJECTS.c.state == LIVE)
        .order_by(OBJECTS.c.number)
        .with_for_update()
    )
    rows: list[dict[str, object]] = []
    for number, parts in connection.execute(query):
        left = [part for part in parts_in(number, parts) if part[0] not in lost[number]]
        rows.append({"of": number, "parts_left": pack_parts(left)})
    if rows:
        statement = update(OBJECTS).where(OBJECTS.c.number == bindparam("of"))
        statement = statement.values(parts=bindparam("parts_left"), death=death)
        connection.execute(statement, rows)


def _pending(number: int, epoch: int, unix_ms: int) -> dict[str, object]:
    return {
        "number": number,
        "epoch": epoch,
        "state": PENDING,
        "death": 0,
        "kind": 0,
        "first_sequence": 0,
        "next_sequence": 0,
        "size_bytes": 0,
        "etag": "",
        "changed_unix_ms": unix_ms,
    }
