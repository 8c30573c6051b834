"""Leases: readers outside the node protect objects from deletion.

A lease covers objects by the count of deaths, not by clocks, which differ between machines: an
object that dies gets a count that is higher than that of every lease taken before. Only a lease's
end is a time, by the clocks of its holder and of the owner. These may differ by as much as the time
for which dead objects are kept anyway.
"""

from typing import Final

from sqlalchemy import Connection, delete, insert, update

from storage_adapters.s3.index_owners import deaths
from storage_adapters.s3.tables import LEASES

HOLDER_MAX: Final = 255


def take(
    connection: Connection, lease_id: str, holder: str, *, now_ms: int, ttl_ms: int
) -> None:
    """Insert a lease, and remove those that have ended."""
    connection.execute(delete(LEASES).where(LEASES.c.expires_unix_ms <= now_ms))
    connection.execute(
        insert(LEASES).values(
            id=lease_id,
            holder=holder[:HOLDER_MAX],
            deaths=deaths(connection),
            expires_unix_ms=now_ms + ttl_ms,
        )
    )


def extend(connection: Connection, lease_id: str, *, now_ms: int, ttl_ms: int) -> bool:
    """Extend a lease that has not ended; return whether it exists."""
    statement = (
        update(LEASES)
        .where(LEASES.c.id == lease_id, LEASES.c.expires_unix_ms > now_ms)
        .values(expires_unix_ms=now_ms + ttl_ms)
    )
    return connection.execute(statement).rowcount > 0


def end(connection: Connection, lease_id: str) -> None:
    """Remove a lease."""
    connection.execute(delete(LEASES).where(LEASES.c.id == lease_id))
