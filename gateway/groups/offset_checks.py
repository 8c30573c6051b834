"""Checks of members that commit or read offsets, of groups of every kind."""

from gateway.clock import Clock
from gateway.config.settings import GroupsConfig
from gateway.errors import GroupNotFound, IllegalGeneration, StaleMemberEpoch
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.consumer.manager import ConsumerGroups
from gateway.groups.consumer.model import NO_PARTITIONS, Partitions
from gateway.groups.cursors import CursorManager
from gateway.groups.directory import GroupDirectory, check_name
from gateway.groups.model import GroupName
from gateway.groups.owners import GroupOwners


class OffsetChecks(GroupDirectory):
    """Groups, as commits and reads of offsets see them. Errors: see ``GroupManager``."""

    def __init__(  # noqa: PLR0917 - the parts of a directory, and a clock
        self,
        cursors: CursorManager,
        owners: GroupOwners,
        consumer_groups: ConsumerGroups,
        share_groups: ConsumerGroups,
        config: GroupsConfig,
        clock: Clock,
    ) -> None:
        super().__init__(cursors, owners, consumer_groups, share_groups, config)
        self._clock = clock

    def check_fetch(self, name: GroupName, member_id: str, epoch: int) -> None:
        """Check that a member of a group of KIP-848 may read offsets; nothing of other groups.

        Errors: those of ``ConsumerGroup.check_epoch``.
        """
        group = self.consumer_groups.by_name.get(name)
        if group is not None:
            group.check_epoch(member_id, epoch)

    def check_commit(
        self, name: GroupName, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Check that a member of this generation may commit offsets.

        Errors: those of ``Group.check_commit``; ``GroupNotFound`` when a generation is given
        of a group that is not there, and for share groups, which commit nothing.
        """
        group = self.find(name)
        if isinstance(group, ConsumerGroup):
            _check_has_offsets(group)
            group.check_epoch(member_id, generation)
            return
        if group is not None:
            now_ms = self._clock.monotonic_ms()
            group.check_commit(member_id, instance_id, generation, now_ms)
            return
        self._cursors.check_loaded()
        check_name(name)
        self.owners.check(name)
        if generation >= 0:
            raise GroupNotFound(f"no group {name.name!r}")
        self._check_room(name)

    def check_transactional_commit(
        self, name: GroupName, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Check that a producer may commit offsets for a member, as Kafka does (KIP-447).

        Without any of the three the commit is that of no member, and may always be. Errors:
        ``UnknownMember``, ``FencedInstance``, ``IllegalGeneration``.
        """
        group = self.find(name)
        is_member = generation >= 0 or bool(member_id) or instance_id is not None
        if group is None:
            self._cursors.check_loaded()
            check_name(name)
            self.owners.check(name)
            if generation >= 0:
                raise IllegalGeneration(f"no group {name.name!r}")
            self._check_room(name)
        elif not is_member:
            return
        elif isinstance(group, ConsumerGroup):
            _check_has_offsets(group)
            try:
                group.check_epoch(member_id, generation)
            except StaleMemberEpoch as error:
                raise IllegalGeneration(str(error)) from None
        else:
            member = group.check_member(member_id, instance_id, generation)
            member.deadline_ms = self._clock.monotonic_ms() + member.session_timeout_ms

    def held_since(self, name: GroupName, member_id: str, epoch: int) -> Partitions:
        """Return the partitions for which a member of KIP-848 may commit by an older epoch."""
        group = self.consumer_groups.by_name.get(name)
        return NO_PARTITIONS if group is None else group.held_since(member_id, epoch)


def _check_has_offsets(group: ConsumerGroup) -> None:
    """Raise ``GroupNotFound`` for a share group: its positions are those of its queues."""
    if not group.protocol.is_exclusive:
        raise GroupNotFound(f"Group {group.name.name[:80]} is not a consumer group.")
