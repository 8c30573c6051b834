"""Members of a group of KIP-848 by id and instance, and the partitions that each uses."""

from collections.abc import Collection
from typing import NamedTuple

from gateway.errors import (
    FencedInstance,
    FencedMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
)
from gateway.groups.consumer.model import (
    JOIN_EPOCH,
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Heartbeat,
    MemberState,
    TopicPartition,
)
from gateway.groups.consumer.reconciliation import ReconciliationStep

_MUST_REJOIN = "The member must abandon all its partitions and rejoin."


class MemberChanges(NamedTuple):
    """Members to be stored, and ids of those to be removed."""

    members: list[ConsumerMember]
    removed: list[str]


class Membership:
    """Members, and ``epochs``: the partitions in use, with the epoch of the member."""

    def __init__(self, group_id: str, noun: str) -> None:
        self._group_id = group_id
        self._noun = noun  # in messages: "consumer" or "share"
        self.by_id: dict[str, ConsumerMember] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self._ids_by_instance: dict[str, str] = {}
        self._changed: dict[str, ConsumerMember] = {}
        self.removed: dict[str, None] = {}
        """Ids of members that are gone, of which that is still to be stored."""

    # --- finding

    def known(self, beat: Heartbeat) -> ConsumerMember:
        """Return the member of a heartbeat. Errors: ``UnknownMember``, ``FencedInstance``."""
        instance_id = beat.instance_id
        if instance_id is not None:
            member_id = self._ids_by_instance.get(instance_id)
            if member_id is None:
                raise UnknownMember(f"Instance id {instance_id[:80]} is unknown.")
            if member_id != beat.member_id:
                raise FencedInstance(
                    f"Static member {beat.member_id[:80]} with instance id "
                    f"{instance_id[:80]} was fenced by member {member_id[:80]}."
                )
        member = self.by_id.get(beat.member_id)
        if member is None:
            raise UnknownMember(
                f"Member {beat.member_id[:80]} is not a member of group {self._group_id[:80]}."
            )
        return member

    def present(self, beat: Heartbeat) -> ConsumerMember | None:
        """Return the member that a heartbeat comes from; None for one that joins and is new.

        A static member that comes back gets, under a new id or its own, what it had. Errors:
        ``UnknownMember``, ``FencedInstance``, ``FencedMemberEpoch``, ``UnreleasedInstance``.
        """
        if beat.epoch != JOIN_EPOCH:
            member = self.known(beat)
            _check_epoch(member, beat, self._noun)
            return member
        if beat.instance_id is not None:
            self._check_id(beat.member_id, beat.instance_id)
        if beat.instance_id is not None and beat.instance_id in self._ids_by_instance:
            static = self.by_id[self._ids_by_instance[beat.instance_id]]
            if static.member_id != beat.member_id or static.epoch == STATIC_LEAVE_EPOCH:
                return self._replace(static, beat)
        known = self.by_id.get(beat.member_id)
        if known is not None:
            _check_epoch(known, beat, self._noun)
        return known

    def _check_id(self, member_id: str, instance_id: str) -> None:
        """Raise ``FencedInstance`` when the id is that of a member with another instance.

        To replace it would leave its partitions in use for ever.
        """
        present = self.by_id.get(member_id)
        if present is not None and present.instance_id != instance_id:
            raise FencedInstance(
                f"Member id {member_id[:80]} is not that of instance id {instance_id[:80]}."
            )

    # --- changing

    def add(self, member: ConsumerMember) -> None:
        """Add a member."""
        self.by_id[member.member_id] = member
        if member.instance_id is not None:
            self._ids_by_instance[member.instance_id] = member.member_id
        self.removed.pop(member.member_id, None)
        self._changed[member.member_id] = member

    def remove(self, member: ConsumerMember) -> None:
        """Remove a member; its partitions are free."""
        del self.by_id[member.member_id]
        if member.instance_id is not None:
            del self._ids_by_instance[member.instance_id]
        self._free(member)
        self._changed.pop(member.member_id, None)
        self.removed[member.member_id] = None

    def take_step(self, member: ConsumerMember, step: ReconciliationStep) -> None:
        """Change a member's epoch, state and partitions."""
        self._free(member)
        if step.epoch != member.epoch:
            member.previous_epoch = member.epoch
        member.epoch, member.state, member.assigned, member.pending = step
        member.since_epochs = {
            partition: member.since_epochs.get(partition, step.epoch)
            for partition in member.assigned | member.pending
        }
        self._use(member)
        self._changed[member.member_id] = member

    def note_change(self, member: ConsumerMember) -> None:
        """Note that a member is to be stored."""
        self._changed[member.member_id] = member

    def _replace(self, static: ConsumerMember, beat: Heartbeat) -> ConsumerMember:
        if static.epoch != STATIC_LEAVE_EPOCH:
            raise UnreleasedInstance(
                f"Static member {beat.member_id[:80]} with instance id "
                f"{(static.instance_id or '')[:80]} "
                "cannot join the group because the instance id is owned by a member."
            )
        member = ConsumerMember(beat.member_id, static.instance_id)
        member.rack_id = static.rack_id
        member.rebalance_timeout_ms = static.rebalance_timeout_ms
        member.names = static.names
        member.regex = static.regex
        member.assignor = static.assignor
        member.target = static.target
        self.remove(static)
        self.add(member)
        step = ReconciliationStep(
            JOIN_EPOCH, MemberState.STABLE, static.assigned, NO_PARTITIONS
        )
        self.take_step(member, step)
        return member

    def _use(self, member: ConsumerMember) -> None:
        for partition in member.assigned | member.pending:
            self.epochs[partition] = member.epoch

    def _free(self, member: ConsumerMember) -> None:
        for partition in member.assigned | member.pending:
            if self.epochs.get(partition) == member.epoch:
                del self.epochs[partition]

    # --- storing

    def restore(self, members: Collection[ConsumerMember]) -> None:
        """Take stored members."""
        for member in members:
            self.by_id[member.member_id] = member
            if member.instance_id is not None:
                self._ids_by_instance[member.instance_id] = member.member_id
            member.since_epochs = dict.fromkeys(member.assigned | member.pending, member.epoch)
            self._use(member)

    @property
    def has_changes(self) -> bool:
        """Whether something is to be stored."""
        return bool(self._changed or self.removed)

    def take_changes(self) -> MemberChanges:
        """Return what is to be stored, and forget that it is."""
        changes = MemberChanges(list(self._changed.values()), list(self.removed))
        self._changed = {}
        self.removed = {}
        return changes

    def keep_changes(self, changes: MemberChanges) -> None:
        """Note again what could not be stored."""
        for member in changes.members:
            if self.by_id.get(member.member_id) is member:
                self._changed[member.member_id] = member
        for member_id in changes.removed:
            if member_id not in self.by_id:
                self.removed[member_id] = None


def _check_epoch(member: ConsumerMember, beat: Heartbeat, noun: str) -> None:
    """Raise ``FencedMemberEpoch`` unless the member's view is present, or one answer behind."""
    if beat.epoch > member.epoch:
        raise FencedMemberEpoch(
            f"The {noun} group member has a greater member epoch ({beat.epoch}) than the "
            f"one known by the group coordinator ({member.epoch}). {_MUST_REJOIN}"
        )
    if beat.epoch < member.epoch:
        is_retry = beat.epoch == member.previous_epoch
        if not is_retry or beat.owned is None or not beat.owned <= member.assigned:
            raise FencedMemberEpoch(
                f"The {noun} group member has a smaller member epoch ({beat.epoch}) than "
                f"the one known by the group coordinator ({member.epoch}). {_MUST_REJOIN}"
            )
