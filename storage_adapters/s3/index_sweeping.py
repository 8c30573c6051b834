"""Objects that nothing needs any more: which they are, and when they may go."""

from sqlalchemy import Connection, func, select

from storage_adapters.s3 import index_work as work
from storage_adapters.s3.tables import DEAD, LEASES, OBJECTS, PENDING


def sweep_pending(
    connection: Connection,
    epoch: int,
    keep: frozenset[int],
    *,
    before_unix_ms: int,
    now_unix_ms: int,
) -> int:
    """Turn pending rows dead that were reserved before a time. Errors: ``Fenced``."""
    work.own(connection, epoch)
    query = select(OBJECTS.c.number).where(
        OBJECTS.c.state == PENDING, OBJECTS.c.changed_unix_ms < before_unix_ms
    )
    numbers = [number for number in connection.scalars(query) if number not in keep]
    # No reader has ever seen them, so that no lease keeps them: death 0.
    work.bury(connection, numbers, state=PENDING, death=0, unix_ms=now_unix_ms)
    return len(numbers)


def dead(
    connection: Connection, *, before_unix_ms: int, now_unix_ms: int, limit: int
) -> list[tuple[int, int]]:
    """Return (number, epoch) of what died before a time and is not kept by a lease."""
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
        )
        .order_by(OBJECTS.c.number)
        .limit(limit)
    )
    return [(number, epoch) for number, epoch in connection.execute(query)]
