"""Consumer groups of a node: look-up, timers and stored state.

``group`` and ``join`` decide what happens in a group; here requests find their group, deadlines
meet the loop, and groups meet the internal stream. Heartbeats only put deadlines off, so they
touch neither timer nor stream. Groups of KIP-848, and share groups, are in
``gateway.groups.consumer``; a name is that of one kind at a time.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from uuid import uuid4

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import GroupsConfig
from gateway.deadlines import Deadlines
from gateway.errors import (
    GatewayError,
    GroupNotEmpty,
    GroupNotFound,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    ShuttingDown,
    StorageUnavailable,
    UnknownMember,
    as_value,
)
from gateway.groups.consumer.manager import ConsumerGroups, OnAnswered
from gateway.groups.consumer.model import JOIN_EPOCH, Heartbeat
from gateway.groups.consumer.protocol import SHARE
from gateway.groups.cursors import CursorManager
from gateway.groups.directory import check_share_name
from gateway.groups.expiry import OffsetExpiry
from gateway.groups.group import Group, OnSaved
from gateway.groups.group_shards import GroupShards
from gateway.groups.join import join
from gateway.groups.model import (
    GroupName,
    GroupState,
    JoinRequest,
    JoinResult,
    OnJoined,
    OnSynced,
    SyncResult,
)
from gateway.groups.offset_checks import OffsetChecks
from gateway.groups.owners import GroupOwners
from gateway.groups.store import GroupStore, restore_group, stored_key
from gateway.storage import OnDone
from gateway.topics.manager import TopicManager


class GroupManager(OffsetChecks):
    """Finds groups for requests. All methods are synchronous; some answer by callback.

    Errors of all methods, beside their own: ``CoordinatorLoading``, ``InvalidGroupId`` and
    ``NotCoordinator`` for a group in a shard of another node.
    """

    def __init__(
        self,
        cursors: CursorManager,
        topics: TopicManager,
        clock: Clock,
        config: GroupsConfig,
        owners: GroupOwners,
    ) -> None:
        stream = cursors.stream
        super().__init__(
            cursors,
            owners,
            ConsumerGroups(stream, topics, clock, config),
            ConsumerGroups(stream, topics, clock, config, SHARE),
            config,
            clock,
        )
        self._store = GroupStore(stream)
        self._deadlines: Deadlines[Group] = Deadlines(clock, self._tick)
        self._expiry: OffsetExpiry | None = None
        self._shards: GroupShards | None = None

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
        groups = cls(cursors, topics, clock, config, GroupOwners(broker.placement))
        groups.load()
        broker.placement.on_change.append(groups._follow_owners)
        groups._shards = GroupShards(broker.shards, groups.owners, groups.load)
        groups._expiry = OffsetExpiry(groups, cursors, topics, clock, config)
        groups._expiry.start()
        return groups

    def load(self, shards: Collection[int] | None = None) -> None:
        """Restore the stored groups of this node, or those of some shards that it has taken.

        Members have a session timeout to return.
        """
        now_ms = self._clock.monotonic_ms()
        for name, value in self._store.stored():
            if name in self._groups or not self._is_taken(shards, name):
                continue
            group = self._groups[name] = self._new_group(name)
            restore_group(group, value, now_ms)
            self._deadlines.arm(group, group.next_deadline_ms())
        for heartbeat_groups in self._heartbeat_groups:
            heartbeat_groups.load(partial(self._is_taken, shards))

    def _is_taken(self, shards: Collection[int] | None, name: GroupName) -> bool:
        return shards is None or self.owners.shard(name) in shards

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
        for heartbeat_groups in self._heartbeat_groups:
            heartbeat_groups.close(self._closed_by)

    def _follow_owners(self, _shards: Collection[int]) -> None:
        """Drop the groups of shards that left, whose members look for the new coordinator."""
        for name, group in list(self._groups.items()):
            if not self.owners.owns(name):
                self._deadlines.forget(group)
                del self._groups[name]
                group.dismiss(self.owners.refusal(name))
        for heartbeat_groups in self._heartbeat_groups:
            for name in list(heartbeat_groups.by_name):
                if not self.owners.owns(name):
                    heartbeat_groups.drop(name, self.owners.refusal(name))

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
                self._convert_to_classic(name, request)
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

    def _convert_to_classic(self, name: GroupName, request: JoinRequest) -> None:
        """Make room for a classic group. Errors: ``UnknownMember``, ``InconsistentProtocol``."""
        if name in self.share_groups.by_name:
            raise InconsistentProtocol(f"group {name.name[:80]!r} is a share group")
        present = self.consumer_groups.by_name.get(name)
        if present is not None and not present.is_idle:
            raise InconsistentProtocol(f"group {name.name[:80]!r} follows KIP-848")
        if request.member_id:
            raise UnknownMember("there is no such group")
        if present is not None:
            self.consumer_groups.remove(name)

    def consumer_heartbeat(
        self, name: GroupName, beat: Heartbeat, on_answered: OnAnswered
    ) -> None:
        """Answer a heartbeat of KIP-848; ``on_answered`` runs once, maybe before this returns.

        A classic group without members becomes one of the new protocol at the first join, with
        its offsets. Errors come by the callback: those of ``ConsumerGroups.heartbeat``;
        ``GroupNotFound`` for a classic group with members, ``GroupFull`` for one group too many.
        """
        try:
            self._check(name)
            classic = self._groups.get(name)
            if name in self.share_groups.by_name:
                raise GroupNotFound(f"Group {name.name[:80]} is not a consumer group.")
            if classic is not None:
                if beat.epoch != JOIN_EPOCH or not classic.is_idle:
                    raise GroupNotFound(f"Group {name.name[:80]} is not a consumer group.")
            elif beat.epoch == JOIN_EPOCH and name not in self.consumer_groups.by_name:
                self._check_room(name)
        except GatewayError as error:
            on_answered(as_value(error))
            return
        self.consumer_groups.heartbeat(name, beat, on_answered)
        if classic is not None and name in self.consumer_groups.by_name:
            self._remove(classic)

    def share_heartbeat(
        self, name: GroupName, beat: Heartbeat, on_answered: OnAnswered
    ) -> None:
        """Answer a heartbeat of KIP-932; ``on_answered`` runs once, maybe before this returns.

        Errors come by the callback: those of ``ConsumerGroups.heartbeat``; ``GroupNotFound`` for
        a group of another kind, or with committed offsets; ``GroupFull`` for one too many;
        ``InvalidGroupId`` as ``check_share_name``.
        """
        try:
            self._check(name)
            check_share_name(name)
            if name not in self.share_groups.by_name and beat.epoch == JOIN_EPOCH:
                if self.has(name):
                    raise GroupNotFound(f"Group {name.name[:80]} is not a share group.")
                self._check_room(name)
        except GatewayError as error:
            on_answered(as_value(error))
            return
        self.share_groups.heartbeat(name, beat, on_answered)

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

    # --- administration

    def delete(self, name: GroupName, on_done: OnDone) -> None:
        """Remove a group and its offsets, in one append; ``on_done`` runs later.

        Errors: ``GroupNotFound``, ``GroupNotEmpty``.
        """
        if not self.has(name):
            raise GroupNotFound(f"no group {name.name!r}")
        group = self.find(name)
        if group is not None and group.state is not GroupState.EMPTY:
            raise GroupNotEmpty(f"group {name.name!r} has members")
        keys = self.consumer_groups.keys_of(name) + self.share_groups.keys_of(name)
        if isinstance(group, Group):
            keys.append(stored_key(name))
            self._remove(group)
        for heartbeat_groups in self._heartbeat_groups:
            heartbeat_groups.forget(name)
        self._cursors.delete_group(name, keys, on_done)

    # --- inside

    def _new_group(self, name: GroupName) -> Group:
        return Group(
            name,
            initial_delay_ms=self._config.initial_rebalance_delay_ms,
            size_max=self._config.group_size_max,
        )

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


def _new_member_id(request: JoinRequest) -> str:
    return f"{request.instance_id or request.client_id}-{uuid4()}"
