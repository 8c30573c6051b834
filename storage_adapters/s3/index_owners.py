"""Owner rows: a row for each log, with its writer, and the common row (``tables.OWNERS``).

A node writes to a log, and the log's epoch is its right to: whoever raises the epoch fences it. No
two logs ever have the same epoch, so that an epoch names a log and its writer.
"""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from gateway.errors import StorageUnavailable
from storage_adapters.formats.log_ranges import LOGS_MAX, first_sequence
from storage_adapters.s3.index_errors import Fenced
from storage_adapters.s3.tables import COMMON, INDEX, INDEX_FORMAT, NOBODY, OWNERS, SOLE


class LogOwner(NamedTuple):
    """A log's row. ``node_id``: ``NOBODY`` when no node may append any more."""

    log: int
    node_id: int
    epoch: int
    next_sequence: int


class Common(NamedTuple):
    """The common row."""

    epoch: int
    next_number: int
    deaths: int


class Claim(NamedTuple):
    """A log that was claimed: its new epoch, its end, and the numbers that were drawn."""

    epoch: int
    next_sequence: int
    numbers: list[int]


def make_rows(connection: Connection) -> None:
    """Insert the rows of new data: one log, which nobody has."""
    zero = {"node_id": NOBODY, "epoch": 0, "next_sequence": 0, "next_number": 0, "deaths": 0}
    first = zero | {"slot": SOLE, "next_sequence": first_sequence(SOLE)}
    connection.execute(insert(OWNERS), [first, zero | {"slot": COMMON, "next_number": 1}])


def log_owners(connection: Connection, *, lock: bool = False) -> list[LogOwner]:
    """Return the rows of all logs; with ``lock``, after all transactions that changed them."""
    query = (
        select(OWNERS.c.slot, OWNERS.c.node_id, OWNERS.c.epoch, OWNERS.c.next_sequence)
        .where(OWNERS.c.slot >= SOLE)
        .order_by(OWNERS.c.slot)
    )
    if lock:
        query = query.with_for_update()  # SQLite holds its one lock since BEGIN IMMEDIATE
    return [LogOwner._make(row) for row in connection.execute(query)]


def raise_format(connection: Connection) -> None:
    """Turn an index of an earlier format into this one; the rows of all logs are locked.

    Up to format 2 there is one log, whose row has the columns of the common row, too.
    """
    if connection.scalar(select(OWNERS.c.slot).where(OWNERS.c.slot == COMMON)) is None:
        columns = (OWNERS.c.epoch, OWNERS.c.next_number, OWNERS.c.deaths)
        alone = connection.execute(select(*columns).where(OWNERS.c.slot == SOLE)).one()
        connection.execute(
            insert(OWNERS).values(
                slot=COMMON,
                node_id=NOBODY,
                epoch=alone.epoch,
                next_sequence=0,
                next_number=alone.next_number,
                deaths=alone.deaths,
            )
        )
        connection.execute(
            update(OWNERS).where(OWNERS.c.slot == SOLE).values(next_number=0, deaths=0)
        )
    connection.execute(
        update(INDEX).where(INDEX.c.format < INDEX_FORMAT).values(format=INDEX_FORMAT)
    )


def deaths(connection: Connection) -> int:
    """Return the transactions in which live objects died, of an index of any format."""
    found = connection.scalar(select(OWNERS.c.deaths).order_by(OWNERS.c.slot).limit(1))
    return int(found or 0)


def draw(
    connection: Connection, *, epochs: int = 0, numbers: int = 0, deaths: int = 0
) -> Common:
    """Raise the counters of the common row, which stays locked; return them."""
    connection.execute(
        update(OWNERS)
        .where(OWNERS.c.slot == COMMON)
        .values(
            epoch=OWNERS.c.epoch + epochs,
            next_number=OWNERS.c.next_number + numbers,
            deaths=OWNERS.c.deaths + deaths,
        )
    )
    query = select(OWNERS.c.epoch, OWNERS.c.next_number, OWNERS.c.deaths)
    return Common._make(connection.execute(query.where(OWNERS.c.slot == COMMON)).one())


def own(connection: Connection, epoch: int, **changes: ColumnElement[int] | int) -> None:
    """Lock and change a log's row by its epoch. Errors: ``Fenced`` when the epoch was raised."""
    statement = (
        update(OWNERS)
        .where(OWNERS.c.slot >= SOLE, OWNERS.c.epoch == epoch)
        .values(epoch=epoch, **changes)
    )
    if connection.execute(statement).rowcount:
        return
    rows = log_owners(connection)
    newest = max(rows, key=lambda one: one.epoch)
    # With several logs it is not known which one had the epoch.
    name = f"node {newest.node_id}" if len(rows) == 1 else "another node"
    raise Fenced(f"{name} has taken over this data (epoch {newest.epoch}, ours was {epoch})")


def take_over(connection: Connection, node_id: int, *, numbers: int) -> Claim:
    """Claim log 0, and fence the writers of all logs."""
    rows = log_owners(connection, lock=True)
    raise_format(connection)
    others = [row.log for row in rows if row.log != SOLE and row.node_id != NOBODY]
    common = draw(connection, epochs=1 + len(others), numbers=numbers)
    for epoch, log in enumerate(others, common.epoch - len(others)):
        _set_epoch(connection, log, epoch)
    return _claim(connection, rows[SOLE], node_id, common, numbers)


def join(connection: Connection, node_id: int, *, numbers: int) -> Claim:
    """Claim the node's own log, one that nobody has, or a new one; fence the log's writer.

    Errors: ``StorageUnavailable`` beyond ``LOGS_MAX``.
    """
    rows = log_owners(connection, lock=True)
    raise_format(connection)
    common = draw(connection, epochs=1, numbers=numbers)
    rows = log_owners(connection)  # with those that came before the common row was locked
    found = [row for row in rows if row.node_id == node_id]
    found += [row for row in rows if row.node_id == NOBODY]
    return _claim(
        connection, found[0] if found else _add_log(connection, rows), node_id, common, numbers
    )


def fence(connection: Connection, log: int) -> Claim:
    """Raise a log's epoch, so that its writer commits nothing more; draw one number."""
    [row] = [one for one in log_owners(connection, lock=True) if one.log == log]
    raise_format(connection)
    return _claim(connection, row, row.node_id, draw(connection, epochs=1, numbers=1), 1)


def replace_logs(
    connection: Connection, ends: Mapping[int, int], *, epoch: int, next_number: int
) -> None:
    """Replace the rows of all logs by those of a recovery; counters never go back.

    ``ends``: the next sequence of each log. ``epoch``: the highest that an object has.
    """
    log_owners(connection, lock=True)
    raise_format(connection)
    now = draw(connection, deaths=1)
    first = max(now.epoch, epoch) + 1
    common = update(OWNERS).where(OWNERS.c.slot == COMMON)
    connection.execute(
        common.values(
            epoch=first + len(ends) - 1, next_number=max(now.next_number, next_number)
        )
    )
    connection.execute(delete(OWNERS).where(OWNERS.c.slot >= SOLE))
    zero = {"node_id": NOBODY, "next_number": 0, "deaths": 0}
    connection.execute(
        insert(OWNERS),
        [
            zero | {"slot": log, "epoch": at, "next_sequence": ends[log]}
            for at, log in enumerate(sorted(ends), first)
        ],
    )


def _add_log(connection: Connection, rows: list[LogOwner]) -> LogOwner:
    log = rows[-1].log + 1
    if log >= LOGS_MAX:
        raise StorageUnavailable(
            f"the index has {log} logs, which is the most that it can have"
        )
    row = LogOwner(log, NOBODY, 0, first_sequence(log))
    connection.execute(
        insert(OWNERS).values(
            slot=log,
            node_id=NOBODY,
            epoch=0,
            next_sequence=row.next_sequence,
            next_number=0,
            deaths=0,
        )
    )
    return row


def _claim(
    connection: Connection, row: LogOwner, node_id: int, common: Common, numbers: int
) -> Claim:
    _set_epoch(connection, row.log, common.epoch, node_id=node_id)
    drawn = list(range(common.next_number - numbers, common.next_number))
    return Claim(common.epoch, row.next_sequence, drawn)


def _set_epoch(connection: Connection, log: int, epoch: int, **more: int) -> None:
    statement = update(OWNERS).where(OWNERS.c.slot == log)
    connection.execute(statement.values(epoch=epoch, **more))
