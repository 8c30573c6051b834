"""Consumer groups of a node: look-up, timers and stored state.

``group`` and ``join`` decide what happens in a group; here requests find their group, deadlines
meet the loop, and groups meet the internal stream. Heartbeats only put deadlines off, so they
touch neither timer nor stream. Other kinds of groups (KIP-848, share groups, RocketMQ) will stand
beside ``Group`` here.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import uuid4

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import GroupsConfig
from gateway.deadlines import Deadlines
from gateway.errors import (
    GatewayError,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    InconsistentProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    ShuttingDown,
    StorageUnavailable,
    UnknownMember,
    as_value,
)
from gateway.groups.cursors import CursorManager
from gateway.groups.expiry import OffsetExpiry
from gateway.groups.group import Group, OnSaved
from gateway.groups.group_shards import GroupShards
from gateway.groups.join import join
from gateway.groups.model import (
    CONSUMER_PROTOCOL,
    GroupName,
    GroupState,
    JoinRequest,
    JoinResult,
    OnJoined,
    OnSynced,
    SyncResult,
)
from gateway.groups.owners import GroupOwners
from gateway.groups.store import GroupStore, restore_group, stored_key
from gateway.storage import OnDone
from gateway.topics.manager import TopicManager

GROUP_ID_CHARS_MAX: Final = 32_767  # what Kafka's older encodings can say


class GroupManager:
    """Finds groups for requests. All methods are synchronous; some answer by callback.

    Errors of all methods, beside their own: ``CoordinatorLoading``, ``InvalidGroupId`` and
    ``NotCoordinator`` for a group in a shard of another node.
    """

    def __init__(
        self, cursors: CursorManager, clock: Clock, config: GroupsConfig, owners: GroupOwners
    ) -> None:
        self.owners = owners
        self._cursors = cursors
        self._store = GroupStore(cursors.stream)
        self._clock = clock
        self._config = config
        self._groups: dict[GroupName, Group] = {}
        self._deadlines: Deadlines[Group] = Deadlines(clock, self._tick)
        self._expiry: OffsetExpiry | None = None
        self._shards: GroupShards | None = None
        self._closed_by: ShuttingDown | None = None

    @classmethod
    async def open(
        cls,
        broker: Broker,
        topics: TopicManager,
        cursors: CursorManager,
        clock: Clock,
        config: GroupsConfig,
    ) -> "GroupManager":
        """Return the node's groups, loaded from the stream of ``cursors``."""
        groups = cls(cursors, clock, config, GroupOwners(broker.placement))
        groups.load()
        broker.placement.on_change.append(groups._follow_owners)
        groups._shards = GroupShards(
            broker.shards, broker.placement, groups.owners, groups.load
        )
        groups._expiry = OffsetExpiry(groups, cursors, topics, clock, config)
        groups._expiry.start()
        return groups

    def load(self, shards: Collection[int] | None = None) -> None:
        """Restore the stored groups of this node, or those of some shards that it has taken.

        Members have a session timeout to return.
        """
        now_ms = self._clock.monotonic_ms()
        for name, value in self._store.stored():
            if name in self._groups or not self.owners.owns(name):
                continue
            if shards is not None and self.owners.shard(name) not in shards:
                continue
            group = self._groups[name] = self._new_group(name)
            restore_group(group, value, now_ms)
            self._deadlines.arm(group, group.next_deadline_ms())

    def close(self) -> None:
        """Answer all pending requests, so that clients look for another node, and stop."""
        if self._shards is not None:
            self._shards.close()
        self._deadlines.close()
        if self._expiry is not None:
            self._expiry.stop()
        self._closed_by = ShuttingDown("the node stops")
        for group in self._groups.values():
            group.dismiss(self._closed_by)

    def _follow_owners(self, _shards: Collection[int]) -> None:
        """Drop the groups of shards that left, whose members look for the new coordinator."""
        for name, group in list(self._groups.items()):
            if not self.owners.owns(name):
                self._deadlines.forget(group)
                del self._groups[name]
                group.dismiss(self.owners.refusal(name))

    # --- what there is

    def find(self, name: GroupName) -> Group | None:
        """Return a group that has, or had, members; None for one that only commits offsets."""
        return self._groups.get(name)

    def names(self, namespace: str | None = None) -> list[GroupName]:
        """Return the groups with members or offsets, sorted; of one namespace, or of all."""
        self._check()
        names = {*self._groups, *self._cursors.groups()}
        owns = self.owners.owns
        return sorted(
            name for name in names if namespace in {None, name.namespace} and owns(name)
        )

    def has(self, name: GroupName) -> bool:
        """Whether the group has, or had, members or offsets."""
        self._check()
        self.owners.check(name)
        return name in self._groups or self._cursors.has(name)

    @property
    def member_count(self) -> int:
        """Number of members of all groups."""
        return sum(len(group.members) for group in self._groups.values())

    def count_by_state(self) -> dict[GroupState, int]:
        """Return the number of groups by state, without groups that only have offsets."""
        counts = dict.fromkeys(GroupState, 0)
        for group in self._groups.values():
            counts[group.state] += 1
        return counts

    # --- membership

    def join(self, name: GroupName, request: JoinRequest, on_joined: OnJoined) -> None:
        """Join a group, created if missing; ``on_joined`` runs once, maybe before this returns.

        All refusals come by it too; see ``gateway.groups.join.join``.
        """
        try:
            self._check(name)
            self._check_session_timeout(request.session_timeout_ms)
            group = self._groups.get(name)
            if group is None:
                if request.member_id:
                    raise UnknownMember("there is no such group")
                self._check_room(name)
                group = self._groups[name] = self._new_group(name)
            try:
                now_ms = self._clock.monotonic_ms()
                join(group, request, _new_member_id(request), on_joined, now_ms)
            finally:
                self._settle(group)
        except MemberIdRequired as error:
            on_joined(JoinResult(error.member_id, error=as_value(error)))
        except GatewayError as error:
            on_joined(JoinResult(request.member_id, error=as_value(error)))

    def sync(  # noqa: PLR0917  # As many as the request has.
        self,
        name: GroupName,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        on_synced: OnSynced,
    ) -> None:
        """Request a member's assignment; ``on_synced`` runs once, maybe before this returns."""
        try:
            group = self._of_member(name)
            try:
                group.sync(
                    member_id,
                    instance_id,
                    generation,
                    assignments,
                    on_synced,
                    self._clock.monotonic_ms(),
                )
            finally:
                self._settle(group)
        except GatewayError as error:
            on_synced(SyncResult(error=as_value(error)))

    def check_protocol(
        self, name: GroupName, protocol_type: str | None, protocol_name: str | None
    ) -> None:
        """Raise ``InconsistentProtocol`` when a member expects another protocol (KIP-559)."""
        group = self._groups.get(name)
        if group is None:
            return
        for own, theirs in (
            (group.protocol_type, protocol_type),
            (group.protocol_name, protocol_name),
        ):
            if own is not None and theirs is not None and own != theirs:
                raise InconsistentProtocol(f"the group's is {own!r}, not {theirs!r}")

    def heartbeat(
        self, name: GroupName, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Keep a member alive. Errors: those of ``Group.heartbeat``."""
        group = self._groups.get(name) or self._of_member(name)
        group.heartbeat(member_id, instance_id, generation, self._clock.monotonic_ms())

    def leave(
        self, name: GroupName, members: Sequence[tuple[str, str | None]]
    ) -> list[GatewayError | None]:
        """Remove members (member id, instance id); return an error or None for each."""
        group = self._of_member(name)
        outcomes: list[GatewayError | None] = []
        for member_id, instance_id in members:
            try:
                group.leave(member_id, instance_id, self._clock.monotonic_ms())
            except GatewayError as error:
                outcomes.append(as_value(error))
            else:
                outcomes.append(None)
        self._settle(group)
        return outcomes

    def check_commit(
        self, name: GroupName, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Check that a member of this generation may commit offsets.

        Errors: those of ``Group.check_commit``; ``GroupNotFound`` when a generation is given
        of a group that is not there.
        """
        group = self._groups.get(name)
        if group is not None:
            now_ms = self._clock.monotonic_ms()
            group.check_commit(member_id, instance_id, generation, now_ms)
            return
        self._cursors.check_loaded()
        _check_name(name)
        self.owners.check(name)
        if generation >= 0:
            raise GroupNotFound(f"no group {name.name!r}")
        self._check_room(name)

    # --- administration

    def delete(self, name: GroupName, on_done: OnDone) -> None:
        """Remove a group and its offsets, in one append; ``on_done`` runs later.

        Errors: ``GroupNotFound``, ``GroupNotEmpty``.
        """
        if not self.has(name):
            raise GroupNotFound(f"no group {name.name!r}")
        group = self._groups.get(name)
        if group is not None and group.state is not GroupState.EMPTY:
            raise GroupNotEmpty(f"group {name.name!r} has members")
        keys = [] if group is None else [stored_key(name)]
        self._cursors.delete_group(name, keys, on_done)
        if group is not None:
            self._remove(group)

    def check_offsets_removable(self, name: GroupName) -> None:
        """Raise ``GroupNotFound``, or ``GroupNotEmpty`` when subscriptions cannot be decoded.

        Of a group of consumers each topic that nobody is subscribed to may go.
        """
        if not self.has(name):
            raise GroupNotFound(f"no group {name.name!r}")
        group = self._groups.get(name)
        if group is None or group.state is GroupState.EMPTY:
            return
        if group.protocol_type != CONSUMER_PROTOCOL:
            raise GroupNotEmpty(f"group {name.name!r} has members")

    def is_subscribed(self, name: GroupName, topic: str) -> bool:
        """Whether a member of the group subscribes to ``topic``, as far as is known."""
        group = self._groups.get(name)
        topics = frozenset[str]() if group is None else group.topics()
        return topics is None or topic in topics

    # --- inside

    def _new_group(self, name: GroupName) -> Group:
        return Group(
            name,
            initial_delay_ms=self._config.initial_rebalance_delay_ms,
            size_max=self._config.group_size_max,
        )

    def _check(self, name: GroupName | None = None) -> None:
        self._cursors.check_loaded()
        if self._closed_by is not None:
            raise self._closed_by
        if name is not None:
            _check_name(name)
            self.owners.check(name)

    def _check_room(self, name: GroupName) -> None:
        """Raise ``GroupFull`` when a new group would be one too many."""
        if self._cursors.has(name):
            return
        if max(len(self._groups), len(self._cursors.groups())) >= self._config.groups_max:
            raise GroupFull(f"there are groups.groups_max, {self._config.groups_max}, groups")

    def _check_session_timeout(self, session_timeout_ms: int) -> None:
        low, high = self._config.session_timeout_ms_min, self._config.session_timeout_ms_max
        if not low <= session_timeout_ms <= high:
            raise InvalidSessionTimeout(f"{session_timeout_ms} ms, not {low} to {high}")

    def _of_member(self, name: GroupName) -> Group:
        self._check(name)
        group = self._groups.get(name)
        if group is None:
            raise UnknownMember("there is no such group")
        return group

    def _tick(self, group: Group) -> None:
        group.tick(self._clock.monotonic_ms())
        self._settle(group)

    def _settle(self, group: Group) -> None:
        """Finish a change of a group: note since when it is empty, store it, set its timer."""
        if group.state is not GroupState.EMPTY:
            group.empty_since_unix_ms = None
        elif group.empty_since_unix_ms is None:
            group.empty_since_unix_ms = self._clock.unix_ms()
        if group.is_idle and group.generation == 0:
            self._remove(group)  # Nobody has ever been in it: its first join was refused.
            return
        on_saved = group.take_save()
        if on_saved is not None:
            now_unix_ms = self._clock.unix_ms()
            self._store.put(group, now_unix_ms, partial(self._saved, group, on_saved))
        if self._closed_by is None:
            self._deadlines.arm(group, group.next_deadline_ms())

    def _saved(
        self, group: Group, on_saved: list[OnSaved], error: StorageUnavailable | None
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        for callback in on_saved:
            callback(error, now_ms)
        if self._groups.get(group.name) is group:
            self._settle(group)

    def _remove(self, group: Group) -> None:
        group.close()
        self._deadlines.forget(group)
        self._groups.pop(group.name, None)


def _check_name(name: GroupName) -> None:
    if not 0 < len(name.name) <= GROUP_ID_CHARS_MAX:
        raise InvalidGroupId(f"a group id has 1 to {GROUP_ID_CHARS_MAX} characters")


def _new_member_id(request: JoinRequest) -> str:
    return f"{request.instance_id or request.client_id}-{uuid4()}"
