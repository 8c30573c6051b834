"""Share sessions: partitions that a member of a share group fetches on one connection (KIP-932).

A session has an epoch that grows with each request, and a holder to which the queues lock what
they deliver. When it ends, by a request or with its connection, what it holds is given back.
"""

from collections.abc import Callable
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


class ShareSessionCache:
    """Sessions of the node, bounded by their number and that of their partitions."""

    def __init__(
        self,
        *,
        sessions_max: int,
        partitions_max: int,
        on_ended: Callable[[ShareSession], None],
    ) -> None:
        """``on_ended`` gives back what a session holds."""
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._on_ended = on_ended
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[object, set[SessionKey]] = {}
        self.partition_count = 0

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def open(self, key: SessionKey, connection: object, holder: int) -> ShareSession | None:
        """Return a new session, in place of one of the same name; None if there are too many."""
        present = self._sessions.get(key)
        if present is not None:
            self.end(present)
        if len(self._sessions) >= self._sessions_max:
            return None
        session = self._sessions[key] = ShareSession(key, connection, holder)
        self._by_connection.setdefault(connection, set()).add(key)
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

    def add(self, session: ShareSession, key: PartitionKey) -> None:
        """Add a partition. Error: ``Refused`` when all sessions have too many."""
        if key in session.partitions:
            return
        if self.partition_count >= self._partitions_max:
            msg = f"Share sessions have at most {self._partitions_max} partitions."
            raise Refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED, msg)
        session.partitions[key] = None
        self.partition_count += 1

    def forget(self, session: ShareSession, key: PartitionKey) -> None:
        """Remove a partition; what the member holds of it stays locked."""
        if key in session.partitions:
            del session.partitions[key]
            self.partition_count -= 1

    def end(self, session: ShareSession) -> None:
        """End a session, once; what it holds is given back."""
        if self._sessions.get(session.key) is not session:
            return
        session.is_ended = True
        del self._sessions[session.key]
        keys = self._by_connection.get(session.connection, set())
        keys.discard(session.key)
        if not keys:
            self._by_connection.pop(session.connection, None)
        self.partition_count -= len(session.partitions)
        self._on_ended(session)

    def end_connection(self, connection: object) -> None:
        """End the sessions of a connection that was lost."""
        for key in list(self._by_connection.get(connection, ())):
            self.end(self._sessions[key])


def end_session(shares: ShareGroups, topics: TopicManager, session: ShareSession) -> None:
    """Give back what a session holds; the deliveries do not count, as in Kafka."""
    uuids = {topic_id for topic_id, _ in session.partitions}
    read = [topic for topic in map(topics.by_uuid, uuids) if topic is not None]
    shares.end_holder(session.key.group, session.holder, read)
