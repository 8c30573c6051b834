"""Share sessions: partitions that a member of a share group fetches on one connection (KIP-932).

A session has an epoch that grows with each request, and a holder to which the queues lock what
they deliver. When it ends, by a request or with its connection, what it holds is given back.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from adapters.kafka.errors import ErrorCode, Refused
from gateway.groups.model import GroupName
from gateway.shares.manager import ShareGroups
from gateway.shares.partition import SharePartition
from gateway.topics.manager import TopicManager

OPEN_EPOCH: Final = 0
CLOSE_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

PartitionKey = tuple[UUID, int]


class SessionKey(NamedTuple):
    """Name of a session: a group and a member of it."""

    group: GroupName
    member_id: str


class ShareBounds(NamedTuple):
    """Numbers of sessions, and of their partitions, of the node and of each connection."""

    sessions_max: int
    partitions_max: int
    connection_sessions_max: int
    connection_partitions_max: int


class ShareSession:
    """One session; ``partitions`` in order of the next fetch, with what they were found to be."""

    __slots__ = (
        "connection", "epoch", "holder", "is_ended", "key", "partitions", "revision",
    )  # fmt: skip

    def __init__(self, key: SessionKey, connection: object, holder: int) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 1
        self.is_ended = False
        self.holder = holder
        self.partitions: dict[PartitionKey, SharePartition | None] = {}
        self.revision = -1
        """Revision of the authorizer for which ``partitions`` were found."""


class _ConnectionSessions:
    """Sessions of one connection."""

    __slots__ = ("keys", "partition_count")

    def __init__(self) -> None:
        self.keys: set[SessionKey] = set()
        self.partition_count = 0


class ShareSessionCache:
    """Sessions of the node, bounded by their number and that of their partitions.

    Each connection has bounds of its own, so that no client takes all that the node has.
    """

    def __init__(self, bounds: ShareBounds, on_ended: Callable[[ShareSession], None]) -> None:
        """``on_ended`` gives back what a session holds."""
        self._bounds = bounds
        self._on_ended = on_ended
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[object, _ConnectionSessions] = {}
        self.partition_count = 0

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def open(self, key: SessionKey, connection: object, holder: int) -> ShareSession:
        """Return a new session, in place of one of the same name.

        Error: ``Refused``, SHARE_SESSION_LIMIT_REACHED for too many of the node or connection.
        """
        present = self._sessions.get(key)
        if present is not None:
            self.end(present)
        own = self._by_connection.get(connection) or _ConnectionSessions()
        bounds = self._bounds
        _check_bound(len(own.keys) + 1, bounds.connection_sessions_max, "sessions here")
        _check_bound(len(self._sessions) + 1, bounds.sessions_max, "sessions in all")
        session = self._sessions[key] = ShareSession(key, connection, holder)
        own.keys.add(key)
        self._by_connection[connection] = own
        return session

    def use(self, key: SessionKey, connection: object, epoch: int) -> ShareSession:
        """Return the session of a request, and count it.

        Errors: ``Refused``, SHARE_SESSION_NOT_FOUND also for one of another connection,
        INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get(key)
        if session is None or session.connection is not connection:
            raise Refused(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session was not found.")
        if epoch == CLOSE_EPOCH:
            return session
        if epoch != session.epoch:
            msg = f"The share session epoch is {session.epoch}, not {epoch}."
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, msg)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        return session

    def add(self, session: ShareSession, keys: Iterable[PartitionKey]) -> None:
        """Add partitions; those that are known stay.

        Error: ``Refused``, SHARE_SESSION_LIMIT_REACHED for too many of the node or connection;
        then the session has ended, and its client opens another one.
        """
        own = self._by_connection[session.connection]
        bounds = self._bounds
        added = [key for key in dict.fromkeys(keys) if key not in session.partitions]
        own_count, count = own.partition_count + len(added), self.partition_count + len(added)
        try:
            _check_bound(own_count, bounds.connection_partitions_max, "partitions here")
            _check_bound(count, bounds.partitions_max, "partitions in all")
        except Refused:
            self.end(session)
            raise
        session.partitions.update(dict.fromkeys(added))
        own.partition_count, self.partition_count = own_count, count

    def forget(self, session: ShareSession, key: PartitionKey) -> None:
        """Remove a partition; what the member holds of it stays locked."""
        if key in session.partitions:
            del session.partitions[key]
            self._by_connection[session.connection].partition_count -= 1
            self.partition_count -= 1

    def end(self, session: ShareSession) -> None:
        """End a session, once; what it holds is given back."""
        if self._sessions.get(session.key) is not session:
            return
        session.is_ended = True
        del self._sessions[session.key]
        own = self._by_connection[session.connection]
        own.keys.discard(session.key)
        own.partition_count -= len(session.partitions)
        if not own.keys:
            del self._by_connection[session.connection]
        self.partition_count -= len(session.partitions)
        self._on_ended(session)

    def end_connection(self, connection: object) -> None:
        """End the sessions of a connection that was lost."""
        own = self._by_connection.get(connection)
        for key in () if own is None else tuple(own.keys):
            self.end(self._sessions[key])


def _check_bound(count: int, count_max: int, what: str) -> None:
    if count > count_max:
        msg = f"Share sessions are bounded: {count} {what}, at most {count_max}."
        raise Refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, msg)


def end_session(shares: ShareGroups, topics: TopicManager, session: ShareSession) -> None:
    """Give back what a session holds; the deliveries do not count, as in Kafka."""
    uuids = {topic_id for topic_id, _ in session.partitions}
    read = [topic for topic in map(topics.by_uuid, uuids) if topic is not None]
    shares.end_holder(session.key.group, session.holder, read)
