"""Expiry of committed offsets some time after their last use (KIP-211)."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from gateway.clock import Clock
from gateway.config.settings import GroupsConfig
from gateway.errors import GatewayError, NotCoordinator, StorageUnavailable
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.cursors import NO_EXPIRY, Cursor, CursorManager
from gateway.groups.group import Group
from gateway.groups.model import GroupName, GroupState
from gateway.storage import OnDone
from gateway.topics.manager import TopicManager

EXPIRE_EVERY_S: Final = 60.0
GROUPS_PER_TURN_MAX: Final = 100

_log = structlog.get_logger()


class Groups(Protocol):
    """Part of ``GroupManager`` used here; see its docstrings."""

    def find(self, name: GroupName) -> Group | ConsumerGroup | None: ...  # noqa: D102
    def has(self, name: GroupName) -> bool: ...  # noqa: D102
    def names(self) -> list[GroupName]: ...  # noqa: D102
    def delete(self, name: GroupName, on_done: OnDone) -> None: ...  # noqa: D102


class OffsetExpiry:
    """Removes expired offsets, and groups that have none left.

    The time (``offsets_retention_ms``) runs from the moment when a group became empty; for
    offsets of simple consumers, and of topics that no member reads any more, from the commit.
    A group whose offsets an open transaction may change is left alone.
    """

    def __init__(
        self,
        groups: Groups,
        cursors: CursorManager,
        topics: TopicManager,
        clock: Clock,
        config: GroupsConfig,
    ) -> None:
        self._groups = groups
        self._cursors = cursors
        self._topics = topics
        self._clock = clock
        self._retention_ms = config.offsets_retention_ms
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._names: list[GroupName] = []
        self.expired = 0

    def start(self) -> None:
        """Start to check all groups periodically, some per turn of the loop."""
        self._timer = self._loop.call_later(EXPIRE_EVERY_S, self._run_some)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_some(self) -> None:
        if not self._names:
            self._names = self._groups.names()
        for _ in range(min(GROUPS_PER_TURN_MAX, len(self._names))):
            self.expire(self._names.pop())
        self._timer = self._loop.call_later(
            0.0 if self._names else EXPIRE_EVERY_S, self._run_some
        )

    def expire(self, name: GroupName) -> None:
        """Remove the expired offsets of one group, and the group when it has nothing left."""
        try:
            if not self._groups.has(name):
                return
        except NotCoordinator:
            return  # It has moved since the names were listed.
        if self._cursors.pending.has_group(name):
            return
        now_unix_ms = self._clock.unix_ms()
        group = self._groups.find(name)
        if isinstance(group, ConsumerGroup) and not group.protocol.is_exclusive:
            return  # A share group has no offsets here; its queues do not expire.
        cursors = self._cursors.fetch_all(name)
        is_read = self._reads(group)
        gone = [
            cursor
            for cursor in cursors
            if not is_read(cursor) and self._is_over(group, cursor, now_unix_ms)
        ]
        self.expired += len(gone)
        try:
            if len(gone) == len(cursors) and (group is None or group.is_idle):
                self._groups.delete(name, _log_failure)
            elif gone:
                partitions = [(cursor.topic_uuid, cursor.number) for cursor in gone]
                self._cursors.delete(name, partitions, _log_failure)
        except GatewayError as error:
            _log.warning("offsets not expired", group=name.name, error=str(error))

    def _reads(self, group: Group | ConsumerGroup | None) -> Callable[[Cursor], bool]:
        """Return a predicate: whether a member of the group reads a topic."""
        if group is None or group.state is GroupState.EMPTY:
            return lambda _: False
        is_known = group.state is GroupState.STABLE or isinstance(group, ConsumerGroup)
        topics = group.topics() if is_known else None
        if topics is None:
            return lambda _: True  # It may be any.

        def is_read(cursor: Cursor) -> bool:
            topic = self._topics.by_uuid(cursor.topic_uuid)
            return topic is None or topic.name.name in topics

        return is_read

    def _is_over(
        self, group: Group | ConsumerGroup | None, cursor: Cursor, now_unix_ms: int
    ) -> bool:
        if cursor.expires_unix_ms != NO_EXPIRY:
            return cursor.expires_unix_ms <= now_unix_ms
        since_unix_ms = cursor.committed_unix_ms
        if group is not None and group.empty_since_unix_ms is not None:
            since_unix_ms = max(since_unix_ms, group.empty_since_unix_ms)
        return since_unix_ms + self._retention_ms <= now_unix_ms


def _log_failure(error: StorageUnavailable | None) -> None:
    if error is not None:
        _log.warning("expired offsets not removed", error=str(error))
