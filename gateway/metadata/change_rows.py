"""Revisions of metadata in SQL: functions of a connection in a transaction.

They run in the worker thread of ``gateway.metadata.database``, which begins and commits. A write
raises the revision first, and so holds the lock of the counter's row until its commit: writes of
all nodes are made one at a time, and revisions become visible in order, without gaps.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select, text

from gateway.metadata.change_model import (
    REVISION,
    ChangesSince,
    MetadataChange,
    MetadataChanged,
)
from gateway.metadata.schema import CHANGES, COUNTERS, SEEN_REVISIONS
from gateway.metadata.topic_rows import reserve_ids

CHANNEL: Final = "headgate_metadata"
"""Channel of PostgreSQL's NOTIFY, with a revision, or the number of a node that has seen more."""
CHANGES_KEPT: Final = 10_000  # a node that is further behind reloads everything
PRUNED_EVERY: Final = 1_000

_NOTIFY: Final = text("SELECT pg_notify(:channel, :payload)")
_REPORT: Final = text(
    "INSERT INTO seen_revisions (node_id, revision) VALUES (:node_id, :revision) "
    "ON CONFLICT (node_id) DO UPDATE SET revision = excluded.revision"
)


def current_revision(connection: Connection) -> int:
    """Return the revision of the last write; 0 before the first."""
    found = connection.scalar(select(COUNTERS.c.next_value).where(COUNTERS.c.name == REVISION))
    return 0 if found is None else int(found) - 1


def raise_revision(
    connection: Connection, change: MetadataChange, *, known: int, writer: str
) -> tuple[int, bool]:
    """Begin a write that was judged by what was known at a revision; return its own revision.

    And whether no other writer was between the two. Errors: ``MetadataChanged`` when one has
    changed rows of the same kind since.
    """
    revision = reserve_ids(connection, REVISION, 1)
    others = _changed_by_others(connection, known, writer) if revision - 1 > known else ()
    if change.is_judged and (others is None or change.kind.value in others):
        msg = f"another node has changed metadata of kind {change.kind.value} since {known}"
        raise MetadataChanged(msg)
    connection.execute(
        insert(CHANGES).values(
            revision=revision, kind=change.kind.value, key=change.key, writer=writer
        )
    )
    if revision % PRUNED_EVERY == 0:
        connection.execute(delete(CHANGES).where(CHANGES.c.revision <= revision - CHANGES_KEPT))
    notify(connection, str(revision))
    return revision, others is not None and not others


def _changed_by_others(
    connection: Connection, known: int, writer: str
) -> Collection[str] | None:
    """Return the kinds that other writers have changed since; None where that is not known."""
    if _lowest(connection) > known + 1:
        return None
    kinds = select(CHANGES.c.kind).where(CHANGES.c.revision > known, CHANGES.c.writer != writer)
    return frozenset(connection.scalars(kinds.distinct()))


def _lowest(connection: Connection) -> int:
    """Return the lowest revision whose change is kept."""
    lowest = connection.scalar(select(func.min(CHANGES.c.revision)))
    return current_revision(connection) + 1 if lowest is None else int(lowest)


def changes_since(connection: Connection, seen: int) -> ChangesSince:
    """Return the changes after a revision, at most ``CHANGES_KEPT``."""
    current = current_revision(connection)
    if current == seen:
        return ChangesSince(current, {})
    keys: defaultdict[str, set[str]] = defaultdict(set)
    later = select(CHANGES.c.kind, CHANGES.c.key).where(
        CHANGES.c.revision > seen, CHANGES.c.revision <= current
    )
    for row in connection.execute(later):
        keys[row.kind].add(row.key)
    # Read last: rows may have been pruned meanwhile. A store that went back was restored.
    if current < seen or _lowest(connection) > seen + 1:
        return ChangesSince(current, None)
    return ChangesSince(current, {kind: frozenset(found) for kind, found in keys.items()})


def report_seen(connection: Connection, node_id: int, revision: int) -> None:
    """Store the revision up to which a node has reloaded changes."""
    connection.execute(_REPORT, {"node_id": node_id, "revision": revision})
    notify(connection, f"{node_id}:{revision}")


def load_seen(connection: Connection) -> dict[int, int]:
    """Return the reported revisions by node."""
    rows = connection.execute(select(SEEN_REVISIONS))
    return {row.node_id: row.revision for row in rows}


def notify(connection: Connection, payload: str) -> None:
    """Notify the nodes that listen, at the commit; SQLite has no such thing."""
    if connection.dialect.name == "postgresql":
        connection.execute(_NOTIFY, {"channel": CHANNEL, "payload": payload})
