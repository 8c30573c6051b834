"""One group of the new protocol (KIP-848) as a state machine driven by heartbeats.

A share group (KIP-932) is one too, whose members get their target at once.

Nothing here waits, reads a clock or stores. A heartbeat is two calls: ``update`` takes what a
member says, and ``answer`` moves it towards its target; between them the manager computes new
targets when ``needs_assignment``. ``take_changes`` says what is to be stored.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from gateway.errors import GroupFull, StaleMemberEpoch, UnknownMember
from gateway.groups.consumer.assignment import AssignmentInput, GroupChanges
from gateway.groups.consumer.membership import MemberChanges, Membership
from gateway.groups.consumer.model import (
    JOIN_EPOCH,
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    Heartbeat,
    HeartbeatResult,
    MemberState,
    Partitions,
    Subscriber,
    SubscriptionLimits,
    Targets,
    TopicSource,
)
from gateway.groups.consumer.patterns import PatternWork
from gateway.groups.consumer.protocol import CONSUMER, MemberProtocol
from gateway.groups.consumer.reconciliation import ReconciliationStep, next_step
from gateway.groups.consumer.subscriptions import Subscriptions
from gateway.groups.model import GroupName, GroupState


class ConsumerGroup:
    """Members of one group, their subscriptions, and who reads which partition."""

    def __init__(
        self,
        name: GroupName,
        *,
        size_max: int,
        session_timeout_ms: int,
        limits: SubscriptionLimits,
        protocol: MemberProtocol = CONSUMER,
    ) -> None:
        self.name = name
        self.protocol = protocol
        self.protocol_type = protocol.name
        self.size_max = size_max
        self.session_timeout_ms = session_timeout_ms
        self.epoch = 0
        self.assignment_epoch = 0
        self.protocol_name = protocol.default_assignor
        self.topics_hash = b""
        self.empty_since_unix_ms: int | None = None  # kept by the manager, which has a clock
        self.is_assigning = False  # an assignor runs elsewhere
        self._members = Membership(name.name, protocol.noun)
        self.by_id = self._members.by_id
        self._subscriptions = Subscriptions(self.by_id, limits)
        self._has_group = False
        self._is_bumped = False  # the epoch grows once a heartbeat, whatever it changes
        self._has_resubscribed = False

    # --- what the group is

    @property
    def state(self) -> GroupState:
        """Kafka's name of what the group is doing."""
        if not self.by_id:
            return GroupState.EMPTY
        if not self.protocol.is_exclusive:
            return GroupState.STABLE
        if self.needs_assignment:
            return GroupState.ASSIGNING
        for member in self.by_id.values():
            is_there = member.epoch == self.assignment_epoch
            if not is_there or member.state is not MemberState.STABLE:
                return GroupState.RECONCILING
        return GroupState.STABLE

    @property
    def generation(self) -> int:
        """The group's epoch, which is what other groups call a generation."""
        return self.epoch

    @property
    def members(self) -> Collection[ConsumerMember]:
        """All members."""
        return self.by_id.values()

    @property
    def is_idle(self) -> bool:
        """Whether it has no member."""
        return not self.by_id

    def has_present(self, member: ConsumerMember) -> bool:
        """Whether a member is still in the group, and not away for a while."""
        is_in = self.by_id.get(member.member_id) is member
        return is_in and member.epoch != STATIC_LEAVE_EPOCH

    def stored_ids(self) -> list[str]:
        """Return the ids of members that are stored, also of those still to be removed."""
        return [*self.by_id, *self._members.removed]

    def topics(self) -> frozenset[str]:
        """Return the topics that members read, by their names and patterns."""
        return self._subscriptions.names()

    @property
    def needs_assignment(self) -> bool:
        """Whether the targets are those of an older epoch."""
        return self.assignment_epoch < self.epoch

    # --- heartbeats

    def update(self, beat: Heartbeat, topics: TopicSource, now_ms: int) -> ConsumerMember:
        """Take what a member says of itself; return it. Errors leave the group as it was.

        Errors: ``UnknownMember``, ``FencedMemberEpoch``, ``UnreleasedInstance``,
        ``FencedInstance``, ``GroupFull``, ``InvalidPattern``.
        """
        self._subscriptions.check(beat)
        self._is_bumped = False
        member = self._members.present(beat) or self._join(beat)
        has_new_fields = self._take_fields(member, beat)
        self._has_resubscribed = self._take_subscription(member, beat)
        if has_new_fields or self._has_resubscribed:
            self._members.note_change(member)
        self._refresh(topics, beat.can_see)
        member.deadline_ms = now_ms + self.session_timeout_ms
        return member

    def answer(self, member: ConsumerMember, beat: Heartbeat, now_ms: int) -> HeartbeatResult:
        """Move a member towards its target; return what it may use, if that changed."""
        before = member.assigned
        readable = member.assigned
        if self._has_resubscribed:
            readable = self._subscriptions.readable(member)
        used = self._members.epochs if self.protocol.is_exclusive else {}
        step = next_step(member, beat.owned, self.assignment_epoch, used, readable)
        if step != (member.epoch, member.state, member.assigned, member.pending):
            self._members.take_step(member, step)
            member.revocation_deadline_ms = None
            if step.state is MemberState.UNREVOKED_PARTITIONS:
                member.revocation_deadline_ms = now_ms + member.rebalance_timeout_ms
        says_all = beat.epoch == JOIN_EPOCH or beat.is_full or member.assigned != before
        return HeartbeatResult(
            member.member_id, member.epoch, member.assigned if says_all else None
        )

    def leave(self, beat: Heartbeat, now_ms: int) -> HeartbeatResult:
        """Remove a member; a static one that says it comes back keeps its partitions a while.

        Errors: ``UnknownMember``, ``FencedInstance``.
        """
        self._is_bumped = False
        member = self._members.known(beat)
        if beat.epoch == STATIC_LEAVE_EPOCH:
            step = ReconciliationStep(
                STATIC_LEAVE_EPOCH, member.state, member.assigned, NO_PARTITIONS
            )
            self._members.take_step(member, step)
            member.revocation_deadline_ms = None
            member.deadline_ms = now_ms + self.session_timeout_ms
        else:
            self._remove(member)
        return HeartbeatResult(beat.member_id, beat.epoch)

    def check_epoch(self, member_id: str, epoch: int) -> None:
        """Check that a member of this epoch may commit or fetch offsets.

        Errors: ``UnknownMember``, ``StaleMemberEpoch``.
        """
        if epoch < 0 and not self.by_id:
            return
        member = self.by_id.get(member_id)
        if member is None:
            raise UnknownMember(f"no member {member_id[:80]!r}")
        if epoch != member.epoch:
            raise StaleMemberEpoch(f"member epoch {epoch}, now {member.epoch}")

    def held_since(self, member_id: str, epoch: int) -> Partitions:
        """Return a member's partitions that it had at an epoch that has passed, and has still.

        Offsets that it commits with that epoch are its own: nobody else had them since.
        """
        member = self.by_id.get(member_id)
        if member is None or not 0 <= epoch <= member.epoch:
            return NO_PARTITIONS
        since_epochs = member.since_epochs.items()
        return frozenset(partition for partition, since in since_epochs if since <= epoch)

    # --- patterns

    def take_pattern_work(self) -> PatternWork | None:
        """Return matches of patterns that are to be made in a thread, once."""
        return self._subscriptions.patterns.take_work()

    def install_patterns(
        self,
        work: PatternWork,
        matched: Mapping[str, frozenset[str]] | None,
        topics: TopicSource,
        can_see: Callable[[str], bool],
    ) -> None:
        """Take the names that patterns have matched, None if they have not been.

        New topics begin a new epoch.
        """
        self._subscriptions.patterns.install(work, matched)
        self._subscriptions.note_change()
        self._is_bumped = False
        if matched is not None and self.by_id:
            self._refresh(topics, can_see)

    # --- assignment

    def assignment_input(self) -> AssignmentInput:
        """Return what the assignor of the group's present epoch needs."""
        uuids: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
        subscribers = []
        for member in self.by_id.values():
            key = member.names, member.regex
            topics = uuids.get(key)
            if topics is None:
                topics = uuids[key] = self._subscriptions.topics_of(member)
            subscribers.append(
                Subscriber(member.member_id, member.instance_id, topics, member.target)
            )
        counts = self._subscriptions.counts
        name = self._favourite()
        assignor = self.protocol.assignors[name]
        return AssignmentInput(self.epoch, name, assignor, subscribers, counts)

    def install(self, epoch: int, assignor: str, targets: Targets) -> None:
        """Take the targets that were made for a group epoch.

        A static member may have come back under a new id meanwhile, which makes no new epoch:
        what it has is made anew then, as others may have its partitions now.
        """
        for member_id, target in targets.items():
            member = self.by_id.get(member_id)
            if member is not None and member.target != target:
                member.target = target
                self._members.note_change(member)
        self.assignment_epoch = epoch
        self.protocol_name = assignor
        self._has_group = True
        if epoch == self.epoch and any(member_id not in targets for member_id in self.by_id):
            self._is_bumped = False
            self._bump()

    def _favourite(self) -> str:
        """Return the assignor that most members name, the first of those that are as many."""
        votes = Counter(member.assignor for member in self.by_id.values() if member.assignor)
        if not votes:
            return self.protocol.default_assignor
        return votes.most_common(1)[0][0]

    # --- time

    def tick(self, member: ConsumerMember, now_ms: int) -> int | None:
        """Remove a member that was silent, or gave nothing up, for too long.

        Return when to look at it again; None once it is gone.
        """
        if self.by_id.get(member.member_id) is not member:
            return None
        deadline_ms = next_deadline_ms(member)
        if deadline_ms > now_ms:
            return deadline_ms
        self._is_bumped = False
        self._remove(member)
        return None

    # --- storing

    def restore(self, members: Collection[ConsumerMember], now_ms: int) -> None:
        """Take stored members; each has a session timeout to return."""
        self._members.restore(members)
        for member in members:
            member.deadline_ms = now_ms + self.session_timeout_ms
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                member.revocation_deadline_ms = now_ms + member.rebalance_timeout_ms

    @property
    def has_changes(self) -> bool:
        """Whether something is to be stored."""
        return self._has_group or self._members.has_changes

    def take_changes(self) -> GroupChanges:
        """Return what is to be stored, and forget that it is."""
        changes = GroupChanges(*self._members.take_changes(), self._has_group)
        self._has_group = False
        return changes

    def keep_changes(self, changes: GroupChanges) -> None:
        """Note again what could not be stored."""
        self._members.keep_changes(MemberChanges(changes.members, changes.removed))
        self._has_group |= changes.has_group

    # --- inside

    def _join(self, beat: Heartbeat) -> ConsumerMember:
        if len(self.by_id) >= self.size_max:
            raise GroupFull(
                f"The {self.protocol.noun} group has reached its maximum capacity of "
                f"{self.size_max} members."
            )
        member = ConsumerMember(beat.member_id, beat.instance_id)
        self._members.add(member)
        self._bump()
        return member

    def _take_fields(self, member: ConsumerMember, beat: Heartbeat) -> bool:
        """Take all but the subscription; return whether something changed."""
        before = _fields(member)
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        if beat.rebalance_timeout_ms != -1:
            member.rebalance_timeout_ms = beat.rebalance_timeout_ms
        if beat.assignor is not None:
            member.assignor = beat.assignor
        member.client_id = beat.client_id
        member.client_host = beat.client_host
        return before != _fields(member)

    def _take_subscription(self, member: ConsumerMember, beat: Heartbeat) -> bool:
        before = member.names, member.regex
        if beat.names is not None:
            member.names = beat.names
        if beat.regex is not None:
            member.regex = beat.regex
        if before == (member.names, member.regex):
            return False
        self._subscriptions.note_change()
        self._bump()
        return True

    def _refresh(self, topics: TopicSource, can_see: Callable[[str], bool]) -> None:
        """Look the topics up again if some may have changed; a change begins a new epoch."""
        topics_hash = self._subscriptions.refresh(topics, can_see)
        if topics_hash is not None and topics_hash != self.topics_hash:
            self.topics_hash = topics_hash
            self._bump()

    def _bump(self) -> None:
        if not self._is_bumped:
            self.epoch += 1
            self._is_bumped = True
            self._has_group = True

    def _remove(self, member: ConsumerMember) -> None:
        self._members.remove(member)
        self._subscriptions.note_change()
        self._bump()


def next_deadline_ms(member: ConsumerMember) -> int:
    """Return when a member is removed unless it sends a heartbeat, or gives partitions up."""
    if member.revocation_deadline_ms is None:
        return member.deadline_ms
    return min(member.deadline_ms, member.revocation_deadline_ms)


def _fields(member: ConsumerMember) -> tuple[object, ...]:
    return (
        member.rack_id,
        member.rebalance_timeout_ms,
        member.assignor,
        member.client_id,
        member.client_host,
    )
