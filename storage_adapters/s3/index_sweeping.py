"""Queries for unneeded objects and the time of their deletion."""

from sqlalchemy import Connection, ScalarSelect, Select, and_, func, or_, select

from storage_adapters.s3 import index_work as work
from storage_adapters.s3.index_owners import own
from storage_adapters.s3.tables import DEAD, LEASES, OBJECTS, OWNERS, PENDING, SOLE


def sweep_pending(
    connection: Connection,
    epoch: int,
    keep: frozenset[int],
    *,
    before_unix_ms: int,
    now_unix_ms: int,
) -> int:
    """Turn pending rows dead that were reserved before a time. Errors: ``Fenced``.

    A writer sweeps its own and those of fenced writers: others still use theirs, however old.
    """
    own(connection, epoch)
    query = select(OBJECTS.c.number).where(
        OBJECTS.c.state == PENDING,
        OBJECTS.c.changed_unix_ms < before_unix_ms,
        or_(OBJECTS.c.epoch == epoch, OBJECTS.c.epoch.not_in(_epochs())),
    )
    numbers = [number for number in connection.scalars(query) if number not in keep]
    # No reader has ever seen them, so that no lease protects them: death 0.
    work.bury(connection, numbers, state=PENDING, death=0, unix_ms=now_unix_ms)
    return len(numbers)


def dead(
    connection: Connection, *, before_unix_ms: int, now_unix_ms: int, limit: int
) -> list[tuple[int, int]]:
    """Return (number, epoch) of objects that died before a time and have no lease.

    Formerly live objects wait until all lower numbers that never were live are gone: a recovery
    from the bucket alone recognizes a replaced node's stale object by the objects put after it.
    """
    kept_after = (
        select(func.min(LEASES.c.deaths))
        .where(LEASES.c.expires_unix_ms > now_unix_ms)
        .scalar_subquery()
    )
    query = (
        select(OBJECTS.c.number, OBJECTS.c.epoch)
        .where(
            OBJECTS.c.state == DEAD,
            OBJECTS.c.changed_unix_ms < before_unix_ms,
            OBJECTS.c.death <= func.coalesce(kept_after, OBJECTS.c.death),
            or_(
                OBJECTS.c.death == 0,
                OBJECTS.c.number < func.coalesce(_first_never_live(), OBJECTS.c.number + 1),
            ),
        )
        .order_by(OBJECTS.c.number)
        .limit(limit)
    )
    return [(number, epoch) for number, epoch in connection.execute(query)]


def _first_never_live() -> ScalarSelect[int]:
    """Select the lowest number of an object that was never live, and can never be; or null."""
    rows = OBJECTS.alias()
    is_replaced = and_(rows.c.state == PENDING, rows.c.epoch.not_in(_epochs()))
    is_dead = and_(rows.c.state == DEAD, rows.c.death == 0)
    return select(func.min(rows.c.number)).where(or_(is_replaced, is_dead)).scalar_subquery()


def _epochs() -> Select[tuple[int]]:
    """Select the epochs by which writers may commit."""
    return select(OWNERS.c.epoch).where(OWNERS.c.slot >= SOLE)
