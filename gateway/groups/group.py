"""One consumer group as a state machine driven by requests and the time.

It follows Apache Kafka 4's classic groups. Nothing here waits, reads a clock or stores: a join
or a sync that must wait keeps its callback; ``next_deadline_ms`` says when ``tick`` is due;
``take_save`` says that the group is to be stored, and what to call when that is done.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from gateway.errors import (
    FencedInstance,
    GatewayError,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMember,
)
from gateway.groups.members import GroupMembers
from gateway.groups.model import (
    CONSUMER_PROTOCOL,
    TRANSITIONS,
    GroupName,
    GroupState,
    JoinRequest,
    JoinResult,
    Member,
    OnJoined,
    OnSynced,
    SyncResult,
)
from gateway.groups.subscription import subscribed_topics

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
SILENT_WAIT_MS_MIN: Final = 1_000  # a member may give the others no time at all
GENERATION_MAX: Final = 0x7FFF_FFFF

OnSaved = Callable[[GatewayError | None, int], None]  # what went wrong, and now_ms


class Group:
    """Members of one group, their generation and their assignments."""

    def __init__(self, name: GroupName, *, initial_delay_ms: int, size_max: int) -> None:
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_name: str | None = None
        self.members = GroupMembers()
        self.empty_since_unix_ms: int | None = None  # kept by the manager, which has a clock
        self._initial_delay_ms = initial_delay_ms
        self.size_max = size_max
        self.pending: dict[str, int] = {}  # ids given but not joined with: their deadlines
        self._unsynced: set[str] = set()  # joined this generation, not synced yet
        self._join_deadline_ms: int | None = None
        self._initial_left_ms: int | None = None  # set while an empty group gathers members
        self._sync_deadline_ms: int | None = None
        self._has_newcomer = False
        self._is_assigned = False  # the leader's assignments of this generation are here
        self._save: list[OnSaved] | None = None

    # --- what the group is

    @property
    def protocol_type(self) -> str | None:
        """``consumer``, ``connect``, ...; None before the first member came."""
        return self.members.protocol_type

    @property
    def is_idle(self) -> bool:
        """Whether it has no member and none is joining."""
        return self.state is GroupState.EMPTY and not self.pending

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return the member a request of this generation comes from.

        Errors: ``UnknownMember``, ``FencedInstance``, ``IllegalGeneration``.
        """
        member = self.members.check(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGeneration(f"generation {generation}, now {self.generation}")
        return member

    def topics(self) -> frozenset[str] | None:
        """Return the topics that members subscribe to; None if one cannot be decoded."""
        if not self.members.by_id:
            return frozenset()
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        topics: set[str] = set()
        for member in self.members:
            own = subscribed_topics(member.metadata(self.protocol_name))
            if own is None:
                return None
            topics |= own
        return frozenset(topics)

    # --- joining (gateway.group_join decides; these are its steps)

    def add(self, member: Member, now_ms: int) -> None:
        """Add a new member with its ``on_join`` callback; ask the others to join again."""
        # It cannot send heartbeats before it knows its id, and a client that went away cannot
        # be told from one that waits; so it is kept for a while and tries again if it lives.
        member.deadline_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        self._has_newcomer = True
        self.members.add(member)
        self.prepare_rebalance(now_ms)

    def rejoin(self, member: Member, request: JoinRequest, on_joined: OnJoined) -> None:
        """Take a member's new join request; an earlier pending request of it is answered."""
        self.members.change_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host
        error = RebalanceInProgress("joined again")
        member.answer_join(JoinResult(member.member_id, error=error))
        member.on_join = on_joined

    def fence(self, member: Member, new_member_id: str) -> None:
        """Give a returning static member its new id; answer the old id as fenced (KIP-345)."""
        error = FencedInstance(f"instance id {member.instance_id!r} has a newer member")
        member.answer_join(JoinResult(member.member_id, error=error))
        member.answer_sync(SyncResult(error=error))
        self._unsynced.discard(member.member_id)
        self.members.rename(member, new_member_id)

    def join_result(self, member: Member) -> JoinResult:
        """Return the present generation for ``member``; only the leader's has all members."""
        is_leader = member.member_id == self.members.leader_id
        return JoinResult(
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.members.leader_id or "",
            members=self.members.listed(self.protocol_name) if is_leader else (),
        )

    # --- rebalancing

    def _to(self, state: GroupState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} to {state}"
        self.state = state

    def prepare_rebalance(self, now_ms: int) -> None:
        """Ask all members to join again; an empty group waits a while for more members."""
        if self.state is GroupState.PREPARING_REBALANCE:
            return
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.members:
                member.assignment = b""
                self._answer_sync(member, now_ms, RebalanceInProgress("a member came or went"))
        self._sync_deadline_ms = None
        timeout_ms = self.members.rebalance_timeout_ms
        if self.state is GroupState.EMPTY:
            delay_ms = min(self._initial_delay_ms, timeout_ms)
            self._initial_left_ms = timeout_ms - delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            self._has_newcomer = False
        else:
            self._join_deadline_ms = now_ms + timeout_ms
        self._to(GroupState.PREPARING_REBALANCE)

    def complete_join_if_all_joined(self, now_ms: int) -> None:
        """Complete the join once every member has joined."""
        if (
            self.state is GroupState.PREPARING_REBALANCE
            and self._initial_left_ms is None  # An empty group waits for its delay.
            and not self.pending
            and self.members.joined_count == len(self.members)
        ):
            self._complete_join(now_ms)

    def _expire_join(self, now_ms: int) -> None:
        """End the time to join; the initial wait is extended while more members come."""
        if self._initial_left_ms and self._has_newcomer:
            delay_ms = min(self._initial_delay_ms, self._initial_left_ms)
            self._initial_left_ms -= delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            self._has_newcomer = False
        else:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Begin the next generation with the joined and the static members."""
        self._initial_left_ms = None
        for member in list(self.members):
            if member.on_join is None and not member.is_static:
                self._drop(member)
        if self.members.by_id and not self.members.elect_among_joined():
            # Only silent static members: their session timeouts decide.
            wait_ms = max(self.members.rebalance_timeout_ms, SILENT_WAIT_MS_MIN)
            self._join_deadline_ms = now_ms + wait_ms
            return
        self._join_deadline_ms = None
        self.generation = self.generation + 1 if self.generation < GENERATION_MAX else 1
        if not self.members.by_id:
            self.protocol_name = None
            self._to(GroupState.EMPTY)
            self.request_save()
            return
        self.protocol_name = self.members.select_protocol()
        self._to(GroupState.COMPLETING_REBALANCE)
        self._is_assigned = False
        self._unsynced = set(self.members.by_id)
        self._sync_deadline_ms = now_ms + self.members.rebalance_timeout_ms
        for member in self.members:
            member.is_new = False
            member.deadline_ms = now_ms + member.session_timeout_ms
        for member in list(self.members):
            member.answer_join(self.join_result(member))

    # --- syncing

    def sync(  # noqa: PLR0917  # As many as the request has.
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        on_synced: OnSynced,
        now_ms: int,
    ) -> None:
        """Answer with the member's assignment once the leader's are stored.

        Only the leader's ``assignments`` count; a member that it left out gets an empty one.
        ``on_synced`` runs once, now or later. Errors, instead of it: ``UnknownMember``,
        ``FencedInstance``, ``IllegalGeneration``, ``RebalanceInProgress``.
        """
        member = self.check_member(member_id, instance_id, generation)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress("join again")
        member.answer_sync(SyncResult(error=RebalanceInProgress("synced again")))
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline_ms = None
        member.on_sync = on_synced
        if self.state is GroupState.STABLE:
            self._answer_sync(member, now_ms)
        elif member_id == self.members.leader_id and not self._is_assigned:
            self._is_assigned = True  # Until these are stored, others do not replace them.
            for other in self.members:
                other.assignment = assignments.get(other.member_id, b"")
            self.request_save(partial(self._finish_sync, generation))

    def _finish_sync(self, generation: int, error: GatewayError | None, now_ms: int) -> None:
        """Answer waiting syncs: the leader's assignments are stored."""
        if self.state is not GroupState.COMPLETING_REBALANCE or self.generation != generation:
            return  # The group has moved on, and has answered them.
        if error is not None:
            for member in self.members:
                member.assignment = b""
                self._answer_sync(member, now_ms, error)
            self.prepare_rebalance(now_ms)
            return
        self._to(GroupState.STABLE)
        for member in list(self.members):
            self._answer_sync(member, now_ms)

    def _answer_sync(
        self, member: Member, now_ms: int, error: GatewayError | None = None
    ) -> None:
        result = SyncResult(
            b"" if error is not None else member.assignment,
            self.protocol_type,
            self.protocol_name,
            error,
        )
        if member.answer_sync(result):
            member.deadline_ms = now_ms + member.session_timeout_ms

    def _expire_sync(self, now_ms: int) -> None:
        """Remove members that joined and never asked for their assignment."""
        self._sync_deadline_ms = None
        for member_id in list(self._unsynced):
            if member_id in self.members:
                self._drop(self.members.by_id[member_id])
        self._unsynced.clear()
        self.prepare_rebalance(now_ms)

    # --- staying and leaving

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> None:
        """Keep a member alive. Errors: as ``sync``; ``RebalanceInProgress`` asks it to join."""
        member = self.check_member(member_id, instance_id, generation)
        member.deadline_ms = now_ms + member.session_timeout_ms
        if self.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress("join again")

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> None:
        """Check a commit's member and generation, and keep the member alive.

        An empty group takes commits from anyone without a generation (KIP-211's simple
        consumers, admins). Errors: as ``sync``; ``RebalanceInProgress`` between a join and the
        assignment.
        """
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if generation < 0 and not member_id and instance_id is None:
            raise UnknownMember("the group has members, and this is none of them")
        member = self.check_member(member_id, instance_id, generation)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgress("the assignments are not there yet")
        member.deadline_ms = now_ms + member.session_timeout_ms

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> None:
        """Remove a member; an admin may name a static one by its instance alone.

        Errors: ``UnknownMember``, ``FencedInstance``.
        """
        if instance_id is None and self.pending.pop(member_id, None) is not None:
            self.complete_join_if_all_joined(now_ms)
            return
        member = None if member_id else self.members.of_instance(instance_id)
        if member is None:
            member = self.members.check(member_id, instance_id)
        self._remove(member, now_ms)

    def _remove(self, member: Member, now_ms: int) -> None:
        self._drop(member)
        if self.state is not GroupState.EMPTY:
            self.prepare_rebalance(now_ms)
        if self._initial_left_ms is not None and not self.members.by_id:
            self._complete_join(now_ms)  # Nobody is left to wait for.
        self.complete_join_if_all_joined(now_ms)

    def _drop(self, member: Member) -> None:
        """Remove a member; its pending requests are answered, so that it can join again."""
        self.members.remove(member)
        self._unsynced.discard(member.member_id)
        gone = UnknownMember("removed from the group")
        member.answer_join(JoinResult("", error=gone))
        member.answer_sync(SyncResult(error=gone))

    def dismiss(self, error: GatewayError) -> None:
        """Answer all pending requests; the node stops, and clients look for another coordinator."""
        for member in list(self.members):
            member.answer_join(JoinResult(member.member_id, error=error))
            member.answer_sync(SyncResult(error=error))

    def close(self) -> None:
        """Remove the group for good. Only an idle one may go."""
        assert not self.members.by_id
        self.pending.clear()
        self._to(GroupState.DEAD)

    # --- time and storage

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next ``tick``; None when only requests change the group."""
        deadlines = [member.deadline_ms for member in self.members if not member.is_held]
        deadlines += self.pending.values()
        if self._join_deadline_ms is not None:
            deadlines.append(self._join_deadline_ms)
        if self._sync_deadline_ms is not None:
            deadlines.append(self._sync_deadline_ms)
        return min(deadlines, default=None)

    def tick(self, now_ms: int) -> None:
        """Handle due deadlines: sessions, unused member ids, the time to join and to sync."""
        for member_id in [key for key, due_ms in self.pending.items() if due_ms <= now_ms]:
            del self.pending[member_id]
        for member in [m for m in self.members if not m.is_held and m.deadline_ms <= now_ms]:
            if member.member_id in self.members:  # An answer may have led to its leaving.
                self._remove(member, now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._expire_sync(now_ms)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._expire_join(now_ms)
        self.complete_join_if_all_joined(now_ms)

    def restore(self, members: Sequence[Member], now_ms: int) -> None:
        """Restore the members of a stored group; each has one session timeout to return."""
        for member in members:
            member.is_new = False
            member.deadline_ms = now_ms + member.session_timeout_ms
            self.members.add(member)
        self.state = GroupState.STABLE if members else GroupState.EMPTY

    def request_save(self, on_saved: OnSaved | None = None) -> None:
        """Request to store the group after this call; ``on_saved`` runs when it is durable."""
        if self._save is None:
            self._save = []
        if on_saved is not None:
            self._save.append(on_saved)

    def take_save(self) -> list[OnSaved] | None:
        """Return the callback for when the present state is stored; None if nothing changed."""
        save, self._save = self._save, None
        return save
