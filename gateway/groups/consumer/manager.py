"""Groups of the new protocol (KIP-848, KIP-932) of a node: timers, assignors, stored state.

``ConsumerGroup`` decides what happens in a group; here heartbeats find their group, deadlines
meet the loop, and what changed is stored before a member hears of it. A heartbeat that changes
nothing touches neither timer nor stream.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

import structlog

from gateway.clock import Clock
from gateway.config.settings import GroupsConfig
from gateway.deadlines import Deadlines
from gateway.errors import (
    GatewayError,
    GroupNotFound,
    StorageUnavailable,
    UnknownMember,
    UnsupportedAssignor,
    as_value,
)
from gateway.groups.consumer.assignment import AssignmentInput, GroupChanges
from gateway.groups.consumer.group import ConsumerGroup, next_deadline_ms
from gateway.groups.consumer.model import (
    JOIN_EPOCH,
    ConsumerMember,
    Heartbeat,
    HeartbeatResult,
    SubscriptionLimits,
    Targets,
)
from gateway.groups.consumer.patterns import PatternWork
from gateway.groups.consumer.protocol import CONSUMER, MemberProtocol
from gateway.groups.consumer.store import (
    KIND_BYTES,
    decode_consumer_group,
    decode_member,
    encode_consumer_group,
    encode_member,
    member_key,
    parse_member_key,
    record_key,
)
from gateway.groups.consumer.topic_source import NamespaceTopics, TopicNames
from gateway.groups.cursor_keys import parse_group_key
from gateway.groups.model import GroupName
from gateway.groups.store import stored_key
from gateway.sharded_stream import ShardedStream
from gateway.topics.manager import TopicManager

INLINE_SIZE_MAX: Final = 5_000
"""Members, partitions and subscriptions above which an assignor runs in a thread: some 5 ms."""

THREADS_MAX: Final = 1
"""Threads for assignors and patterns of all groups; a group has one of each at a time."""

log = structlog.get_logger()

OnAnswered = Callable[[HeartbeatResult | GatewayError], None]
Item = tuple[bytes, bytes | None]


class _Watched(NamedTuple):
    """Member with its group, as a timer knows them; by id, so as to keep no member that left."""

    group: ConsumerGroup
    member_id: str


class _Waiting(NamedTuple):
    """Join that waits until an assignor is done."""

    member: ConsumerMember
    beat: Heartbeat
    on_answered: OnAnswered


class ConsumerGroups:
    """Groups by name. ``GroupManager`` checks names, owners and room before it calls."""

    def __init__(
        self,
        stream: ShardedStream,
        topics: TopicManager,
        clock: Clock,
        config: GroupsConfig,
        protocol: MemberProtocol = CONSUMER,
    ) -> None:
        self.protocol = protocol
        self.by_name: dict[GroupName, ConsumerGroup] = {}
        self._stream = stream
        self._topics = topics
        self._clock = clock
        self._config = config
        self._limits = SubscriptionLimits(
            config.consumer_names_max, config.consumer_patterns_max
        )
        self._deadlines: Deadlines[_Watched] = Deadlines(clock, self._tick)
        self._waiting: dict[GroupName, list[_Waiting]] = {}
        self._topic_names = TopicNames(topics)
        self._executor = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="groups")
        self._is_closed = False

    def load(self, owns: Callable[[GroupName], bool]) -> None:
        """Restore the stored groups for which ``owns`` holds and that are not here yet."""
        found: dict[GroupName, ConsumerGroup] = {}
        members: dict[GroupName, list[ConsumerMember]] = {}
        for key, value in self._stream.values.items():
            if key.startswith(self.protocol.group_key):
                name, _ = parse_group_key(key, KIND_BYTES)
                if name in self.by_name or not owns(name):
                    continue
                stored = decode_consumer_group(value)
                group = found[name] = self._new_group(name)
                group.epoch = stored.epoch
                group.assignment_epoch = stored.assignment_epoch
                group.topics_hash = stored.topics_hash
                group.empty_since_unix_ms = stored.empty_since_unix_ms
                group.protocol_name = stored.assignor
            elif key.startswith(self.protocol.member_key):
                name, member_id = parse_member_key(key)
                if name in self.by_name or not owns(name):
                    continue
                members.setdefault(name, []).append(decode_member(member_id, value))
        now_ms = self._clock.monotonic_ms()
        for name, group in found.items():
            self.by_name[name] = group
            group.restore(members.get(name, ()), now_ms)
            for member in group.members:
                self._watch(group, member)
        orphans = [
            (member_key(name, member.member_id, self.protocol), None)
            for name, some in members.items()
            if name not in found
            for member in some
        ]
        if orphans:  # their group's record is gone, and nothing else would remove theirs
            self._stream.put(orphans, _ignore)

    def close(self, error: GatewayError) -> None:
        """Stop all timers; answer joins that wait."""
        self._is_closed = True
        self._deadlines.close()
        self._executor.shutdown(wait=False, cancel_futures=True)
        for name in list(self._waiting):
            self._answer_waiting(name, error)

    def drop(self, name: GroupName, error: GatewayError) -> None:
        """Forget a group that another node has now; what is stored stays."""
        group = self.by_name.pop(name, None)
        if group is not None:
            for member_id in group.by_id:
                self._deadlines.forget(_Watched(group, member_id))
            self._answer_waiting(name, error)

    def forget(self, name: GroupName) -> None:
        """Forget a group without members; joins that wait for an assignor are refused."""
        self.by_name.pop(name, None)
        self._answer_waiting(name)

    # --- heartbeats

    def heartbeat(
        self,
        name: GroupName,
        beat: Heartbeat,
        on_answered: OnAnswered,
    ) -> None:
        """Answer a member, after what changed is durable; maybe before this returns.

        Errors come by the callback too: those of ``ConsumerGroup.update``,
        ``UnsupportedAssignor``, ``GroupNotFound`` for a group that is not there and a member
        that does not join.
        """
        try:
            if beat.assignor is not None and beat.assignor not in self.protocol.assignors:
                raise UnsupportedAssignor(
                    f"ServerAssignor {beat.assignor[:80]} is not supported. "
                    f"Supported assignors: {', '.join(self.protocol.assignors)}."
                )
            group = self.by_name.get(name)
            if group is None:
                if beat.epoch != JOIN_EPOCH:
                    noun = self.protocol.noun.capitalize()
                    kind = "Group" if beat.epoch < JOIN_EPOCH else f"{noun} group"
                    raise GroupNotFound(f"{kind} {name.name[:80]} not found.")
                group = self._new_group(name)
            if beat.epoch < JOIN_EPOCH:
                self._leave(group, beat, on_answered)
                return
            topics = NamespaceTopics(self._topics, self._topic_names, name.namespace)
            member = group.update(beat, topics, self._clock.monotonic_ms())
        except GatewayError as error:
            on_answered(as_value(error))
            return
        self.by_name[name] = group
        if (pattern_work := group.take_pattern_work()) is not None:
            self._match(group, pattern_work, topics, beat.can_see)
        if group.needs_assignment:
            self._assign(group)
        if group.is_assigning and beat.epoch == JOIN_EPOCH:
            waiting = self._waiting.setdefault(name, [])
            waiting.append(_Waiting(member, beat, on_answered))
            return
        self._answer(group, member, beat, on_answered)

    def _leave(self, group: ConsumerGroup, beat: Heartbeat, on_answered: OnAnswered) -> None:
        result = group.leave(beat, self._clock.monotonic_ms())
        if beat.member_id not in group.by_id:
            self._deadlines.forget(_Watched(group, beat.member_id))
        self._store(group, partial(_answer_stored, on_answered, result))

    def _answer(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        beat: Heartbeat,
        on_answered: OnAnswered,
    ) -> None:
        result = group.answer(member, beat, self._clock.monotonic_ms())
        self._watch(group, member)
        if group.has_changes:
            self._store(group, partial(_answer_stored, on_answered, result))
        else:
            on_answered(result)

    # --- assignment

    def _assign(self, group: ConsumerGroup) -> None:
        """Make new targets: at once for a small group, in a thread for a large one."""
        if group.is_assigning:
            return
        work = group.assignment_input()
        if work.size <= INLINE_SIZE_MAX:
            group.install(work.epoch, work.assignor_name, work.run())
            return
        group.is_assigning = True
        future = asyncio.get_running_loop().run_in_executor(self._executor, work.run)
        future.add_done_callback(partial(self._assigned, group, work))

    def _assigned(
        self, group: ConsumerGroup, work: AssignmentInput, done: asyncio.Future[Targets]
    ) -> None:
        group.is_assigning = False
        if done.cancelled() or self._is_closed or self.by_name.get(group.name) is not group:
            return
        error = done.exception()
        if error is not None:  # a bug: the targets stay, and the next heartbeat tries again
            log.error("an assignor failed", group=group.name.name, exc_info=error)
            self._answer_waiting(group.name, GatewayError("the assignor failed"))
            return
        group.install(work.epoch, work.assignor_name, done.result())
        if group.needs_assignment:
            self._assign(group)
        self._store(group, _ignore)
        if not group.is_assigning:
            self._answer_waiting(group.name)

    def _match(
        self,
        group: ConsumerGroup,
        work: PatternWork,
        topics: NamespaceTopics,
        can_see: Callable[[str], bool],
    ) -> None:
        """Match patterns in a thread. Members hear of new topics by their next heartbeats."""
        future = asyncio.get_running_loop().run_in_executor(self._executor, work.run)
        future.add_done_callback(partial(self._matched, group, work, topics, can_see))

    def _matched(
        self,
        group: ConsumerGroup,
        work: PatternWork,
        topics: NamespaceTopics,
        can_see: Callable[[str], bool],
        done: asyncio.Future[Mapping[str, frozenset[str]]],
    ) -> None:
        if done.cancelled() or self._is_closed:
            return
        error = done.exception()
        if error is not None:
            log.error("patterns of a group failed", group=group.name.name, exc_info=error)
        group.install_patterns(work, None if error else done.result(), topics, can_see)
        if self.by_name.get(group.name) is group and group.needs_assignment:
            self._assign(group)
            self._store(group, _ignore)

    def _answer_waiting(self, name: GroupName, error: GatewayError | None = None) -> None:
        group = self.by_name.get(name)
        for member, beat, on_answered in self._waiting.pop(name, ()):
            if error is not None:
                on_answered(error)
            elif group is None or not group.has_present(member):
                on_answered(UnknownMember(f"no member {member.member_id[:80]!r}"))
            else:
                self._answer(group, member, beat, on_answered)

    def remove(self, name: GroupName) -> None:
        """Remove a group without members, and what is stored of it."""
        keys = self.keys_of(name)
        self.forget(name)
        self._stream.put([(key, None) for key in keys], _ignore)

    # --- storing and time

    def keys_of(self, name: GroupName) -> list[bytes]:
        """Return the keys of a group and of its members in the stream."""
        group = self.by_name.get(name)
        if group is None:
            return []
        ids = group.stored_ids()
        members = [member_key(name, member_id, self.protocol) for member_id in ids]
        return [record_key(name, self.protocol), *members]

    def _new_group(self, name: GroupName) -> ConsumerGroup:
        return ConsumerGroup(
            name,
            size_max=self._config.group_size_max,
            session_timeout_ms=self._config.consumer_session_timeout_ms,
            limits=self._limits,
            protocol=self.protocol,
        )

    def _store(
        self,
        group: ConsumerGroup,
        on_stored: Callable[[StorageUnavailable | None], None],
    ) -> None:
        if group.is_idle:
            if group.empty_since_unix_ms is None:
                group.empty_since_unix_ms = self._clock.unix_ms()
        else:
            group.empty_since_unix_ms = None
        changes = group.take_changes()
        name = group.name
        items: list[Item] = [
            (member_key(name, member.member_id, self.protocol), encode_member(member))
            for member in changes.members
        ]
        items += [
            (member_key(name, member_id, self.protocol), None) for member_id in changes.removed
        ]
        if changes.has_group:
            items.append((record_key(name, self.protocol), encode_consumer_group(group)))
        classic_key = stored_key(name)
        if self._stream.get(classic_key) is not None:  # It was a classic group before.
            items.append((classic_key, None))
        stored = partial(_stored, group, changes, on_stored)
        try:
            self._stream.put(items, stored)
        except GatewayError as error:  # Larger than a record may be.
            failure = StorageUnavailable(str(error))
            self._stream.put([], lambda _: stored(failure))

    def _watch(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._deadlines.arm(_Watched(group, member.member_id), next_deadline_ms(member))

    def _tick(self, watched: _Watched) -> None:
        group, member_id = watched
        if self.by_name.get(group.name) is not group:
            return  # What is stored is another's now.
        member = group.by_id.get(member_id)
        deadline_ms = None
        if member is not None:
            deadline_ms = group.tick(member, self._clock.monotonic_ms())
        if deadline_ms is not None:
            self._deadlines.arm(watched, deadline_ms)
        elif group.has_changes:
            self._store(group, _ignore)


def _stored(
    group: ConsumerGroup,
    changes: GroupChanges,
    on_stored: Callable[[StorageUnavailable | None], None],
    error: StorageUnavailable | None,
) -> None:
    if error is not None:
        group.keep_changes(changes)
    on_stored(error)


def _answer_stored(
    on_answered: OnAnswered, result: HeartbeatResult, error: StorageUnavailable | None
) -> None:
    on_answered(result if error is None else error)


def _ignore(error: StorageUnavailable | None) -> None:
    """Take no notice: what was not stored is stored with the next change."""
