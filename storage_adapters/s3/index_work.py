"""Statements of one commit: one for each kind of change, never one per partition.

All of it runs within a transaction whose first statement is ``own``: that statement changes the
owner's row, and so waits until no other transaction has, and keeps others waiting until the end.
Under READ COMMITTED each later statement sees what those others committed.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from sqlalchemy import ColumnElement, Connection, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from storage_adapters.formats.object_index import pack_parts
from storage_adapters.s3.change import BoundsRow, Change, NewObject, ObjectId
from storage_adapters.s3.index_errors import Fenced, PendingLost
from storage_adapters.s3.tables import (
    BOUNDS,
    DEAD,
    LIVE,
    OBJECTS,
    OWNERS,
    PENDING,
    SLOT,
)

IN_LIST_MAX = 1_000  # values in one IN (...): databases bound the parameters of a statement


class Owner(NamedTuple):
    """The owner's row."""

    node_id: int
    epoch: int
    next_sequence: int
    next_number: int
    deaths: int


def owner(connection: Connection, *, lock: bool = False) -> Owner:
    """Return the owner's row; with ``lock``, wait first for all transactions that changed it."""
    query = select(
        OWNERS.c.node_id,
        OWNERS.c.epoch,
        OWNERS.c.next_sequence,
        OWNERS.c.next_number,
        OWNERS.c.deaths,
    ).where(OWNERS.c.slot == SLOT)
    if lock:
        query = query.with_for_update()  # SQLite holds its one lock since BEGIN IMMEDIATE
    return Owner._make(connection.execute(query).one())


def own(connection: Connection, epoch: int, **changes: ColumnElement[int] | int) -> None:
    """Lock and change the owner's row. Errors: ``Fenced`` when another node has taken over."""
    statement = (
        update(OWNERS)
        .where(OWNERS.c.slot == SLOT, OWNERS.c.epoch == epoch)
        .values(epoch=epoch, **changes)
    )
    if connection.execute(statement).rowcount:
        return
    now = owner(connection)
    raise Fenced(
        f"node {now.node_id} has taken over this data (epoch {now.epoch}, ours was {epoch})"
    )


class PackedChange(NamedTuple):
    """A change with its blobs packed before the owner's row is locked."""

    change: Change
    live_rows: list[dict[str, object]]
    shrunk_rows: list[dict[str, object]]

    @property
    def more_ms(self) -> int:
        """Additional time that it may take: 1 ms for each row and KiB of blobs."""
        rows = [*self.live_rows, *self.shrunk_rows]
        blobs = [value for row in rows for value in row.values() if isinstance(value, bytes)]
        return len(rows) + len(self.change.gone) + sum(map(len, blobs)) // 1_024


def pack(change: Change) -> PackedChange:
    """Pack a change for ``apply``."""
    return PackedChange(
        change,
        [live_row(new) | {"of": new.stored.number} for new in change.added],
        [{"of": number, "parts_left": pack_parts(parts)} for number, parts in change.shrunk],
    )


def apply(connection: Connection, epoch: int, packed: PackedChange, unix_ms: int) -> list[int]:
    """Apply a change; return the numbers that it reserved. Errors: see ``Index.commit``."""
    change = packed.change
    changes: dict[str, ColumnElement[int] | int] = {}
    if change.next_sequence >= 0:
        changes["next_sequence"] = change.next_sequence
    if change.reserve:
        changes["next_number"] = OWNERS.c.next_number + change.reserve
    if change.gone:
        changes["deaths"] = OWNERS.c.deaths + 1
    own(connection, epoch, **changes)
    if change.added:
        _turn_live(connection, epoch, packed.live_rows)
    if change.gone:
        deaths = owner(connection).deaths
        bury(connection, change.gone, state=LIVE, death=deaths, unix_ms=unix_ms)
    if change.shrunk:
        _shrink(connection, packed.shrunk_rows)
    put_bounds(connection, change.bounds)
    if not change.reserve:
        return []
    return reserve(connection, epoch, change.reserve, unix_ms)


def reserve(connection: Connection, epoch: int, count: int, unix_ms: int) -> list[int]:
    """Insert pending rows of the last ``count`` numbers; ``next_number`` was moved up already."""
    next_number = owner(connection).next_number
    numbers = list(range(next_number - count, next_number))
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
    """Return whether a change was committed, after every transaction on the owner's row has ended.

    A change of bounds alone counts as not done: repeating it changes nothing.
    """
    owner(connection, lock=True)
    if change.added:
        numbers = [new.stored.number for new in change.added]
        found = states(connection, numbers)
        return all(found.get(number) == LIVE for number in numbers)
    if change.gone:
        return LIVE not in states(connection, change.gone).values()
    return False


def put_bounds(connection: Connection, bounds: Iterable[BoundsRow]) -> None:
    """Insert or replace rows of bounds."""
    rows = [
        {
            "partition_id": row.partition_id,
            "start_offset": row.start,
            "below_bytes": row.below_bytes,
            "is_deleted": row.is_deleted,
        }
        for row in bounds
    ]
    if not rows:
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(BOUNDS)
    columns = ("start_offset", "below_bytes", "is_deleted")
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[BOUNDS.c.partition_id],
            set_={name: statement.excluded[name] for name in columns},
        ),
        rows,
    )


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


def _shrink(connection: Connection, rows: list[dict[str, object]]) -> None:
    statement = (
        update(OBJECTS)
        .where(OBJECTS.c.number == bindparam("of"), OBJECTS.c.state == LIVE)
        .values(parts=bindparam("parts_left"))
    )
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
