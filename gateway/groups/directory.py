"""Groups that a node knows: of either protocol, or with committed positions only."""

from typing import Final

from gateway.config.settings import GroupsConfig
from gateway.errors import (
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    InvalidGroupId,
    ShuttingDown,
)
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.consumer.manager import ConsumerGroups
from gateway.groups.cursors import CursorManager
from gateway.groups.group import Group
from gateway.groups.model import CONSUMER_PROTOCOL, GroupName, GroupState
from gateway.groups.owners import GroupOwners
from gateway.model import DEFAULT_GROUP

GROUP_ID_CHARS_MAX: Final = 32_767  # what Kafka's older encodings can say
SHARE_GROUP_ID_CHARS_MAX: Final = 255  # as of the queue groups of that name


class GroupDirectory:
    """Looks groups up and lists them. Errors: see ``GroupManager``."""

    def __init__(
        self,
        cursors: CursorManager,
        owners: GroupOwners,
        consumer_groups: ConsumerGroups,
        share_groups: ConsumerGroups,
        config: GroupsConfig,
    ) -> None:
        self.owners = owners
        self.consumer_groups = consumer_groups
        """Groups of KIP-848."""
        self.share_groups = share_groups
        """Share groups (KIP-932)."""
        self._heartbeat_groups = (consumer_groups, share_groups)
        self._cursors = cursors
        self._config = config
        self._groups: dict[GroupName, Group] = {}
        self._closed_by: ShuttingDown | None = None

    def find(self, name: GroupName) -> Group | ConsumerGroup | None:
        """Return a group that has, or had, members; None for one that only commits offsets."""
        return (
            self._groups.get(name)
            or self.consumer_groups.by_name.get(name)
            or self.share_groups.by_name.get(name)
        )

    def names(self, namespace: str | None = None) -> list[GroupName]:
        """Return the groups with members or offsets, sorted; of one namespace, or of all."""
        self._check()
        names = {*self._all(), *self._cursors.groups()}
        owns = self.owners.owns
        return sorted(
            name for name in names if namespace in {None, name.namespace} and owns(name)
        )

    def has(self, name: GroupName) -> bool:
        """Whether the group has, or had, members or offsets."""
        self._check()
        self.owners.check(name)
        return self.find(name) is not None or self._cursors.has(name)

    @property
    def member_count(self) -> int:
        """Number of members of all groups."""
        return sum(len(group.members) for group in self._all().values())

    def count_by_state(self) -> dict[GroupState, int]:
        """Return the number of groups by state, without groups that only have offsets."""
        counts = dict.fromkeys(GroupState, 0)
        for group in self._all().values():
            counts[group.state] += 1
        return counts

    def _all(self) -> dict[GroupName, Group | ConsumerGroup]:
        return {
            **self._groups,
            **self.consumer_groups.by_name,
            **self.share_groups.by_name,
        }

    def check_offsets_removable(self, name: GroupName) -> None:
        """Raise ``GroupNotFound``, or ``GroupNotEmpty`` when subscriptions cannot be decoded.

        Of a group of consumers each topic that nobody is subscribed to may go.
        """
        if not self.has(name):
            raise GroupNotFound(f"no group {name.name!r}")
        group = self.find(name)
        if group is None or group.state is GroupState.EMPTY:
            return
        if group.protocol_type != CONSUMER_PROTOCOL:
            raise GroupNotEmpty(f"group {name.name!r} has members")

    def is_subscribed(self, name: GroupName, topic: str) -> bool:
        """Whether a member of the group subscribes to ``topic``, as far as is known."""
        group = self.find(name)
        topics = frozenset[str]() if group is None else group.topics()
        return topics is None or topic in topics

    def _check(self, name: GroupName | None = None) -> None:
        self._cursors.check_loaded()
        if self._closed_by is not None:
            raise self._closed_by
        if name is not None:
            check_name(name)
            self.owners.check(name)

    def _check_room(self, name: GroupName) -> None:
        """Raise ``GroupFull`` when a new group would be one too many."""
        if self._cursors.has(name):
            return
        count = len(self._groups) + sum(len(one.by_name) for one in self._heartbeat_groups)
        if max(count, len(self._cursors.groups())) >= self._config.groups_max:
            raise GroupFull(f"there are groups.groups_max, {self._config.groups_max}, groups")


def check_name(name: GroupName) -> None:
    """Raise ``InvalidGroupId`` for an empty or too long id."""
    if not 0 < len(name.name) <= GROUP_ID_CHARS_MAX:
        raise InvalidGroupId(f"a group id has 1 to {GROUP_ID_CHARS_MAX} characters")


def check_share_name(name: GroupName) -> None:
    """Raise ``InvalidGroupId`` for an id that no share group's queues can have.

    It is too long, or that of the queues of other protocols: who may read a share group of any
    name would take their messages.
    """
    if name.name == DEFAULT_GROUP:
        raise InvalidGroupId(f"{DEFAULT_GROUP} is the group of queues of other protocols")
    if len(name.name) > SHARE_GROUP_ID_CHARS_MAX:
        raise InvalidGroupId(f"a share group's id has at most {SHARE_GROUP_ID_CHARS_MAX} chars")
