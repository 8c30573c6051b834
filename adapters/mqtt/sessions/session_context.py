"""Services that sessions and shared subscriptions use.

They attach and detach sessions, subscribe, redeliver and send retained messages, by the trie, the
feeds and the store. Everything runs on the event loop.
"""

import asyncio
from collections.abc import Coroutine, Iterable

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.counters import Counters
from adapters.mqtt.delivery.distributor import Distributor
from adapters.mqtt.ports import (
    Follower,
    GroupPort,
    RedeliveryPort,
    SessionConnection,
    SessionPort,
)
from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.reading.pacing import Pace
from adapters.mqtt.retained.scans import RetainedScans
from adapters.mqtt.retained.store import RetainedStore
from adapters.mqtt.sessions.disconnected_filters import DisconnectedFilters
from adapters.mqtt.sessions.ended_registry import EndedRegistry
from adapters.mqtt.sessions.journal import SessionJournal
from adapters.mqtt.sessions.journal_writer import JournalWriter
from adapters.mqtt.sessions.read_access import forbidden_to, put_in_force
from adapters.mqtt.sessions.redelivery import redeliver
from adapters.mqtt.sessions.returning_filters import ReturningFilters
from adapters.mqtt.sessions.share_shards import ShareShards
from adapters.mqtt.sessions.store import SessionStore
from adapters.mqtt.sessions.subscribing import Subscribing
from adapters.mqtt.shared_subscriptions.groups import ShareGroup
from adapters.mqtt.shared_subscriptions.lanes import ShareLanes
from adapters.mqtt.shared_subscriptions.member_redelivery import MemberRedelivery
from adapters.mqtt.subscriptions.filters import (
    filter_bytes,
)
from adapters.mqtt.subscriptions.subscription import Subscription
from gateway.clock import Clock
from gateway.queues.journal import QueueJournal
from gateway.shard_lifecycle import ShardLifecycle


class SessionContext:
    """Context of all sessions of the node. ``dirty``: sessions to be stored at a checkpoint."""

    def __init__(  # noqa: PLR0913, PLR0917 - its surroundings, made once
        self,
        config: MqttConfig,
        clock: Clock,
        counters: Counters,
        distributor: Distributor,
        feeds: FeedSet,
        store: SessionStore,
        retained: RetainedStore,
        shares: QueueJournal,
        shards: ShardLifecycle,
    ) -> None:
        self.config = config
        self.clock = clock
        self.counters = counters
        self.distributor = distributor
        self.feeds = feeds
        self.store = store
        self.retained = retained
        self.retained_scans = RetainedScans(retained)
        self.receiver_bytes_max = config.receiver_bytes_max
        self.dirty: set[SessionPort] = set()
        self.endings = EndedRegistry(
            distributor.ended,
            counters,
            self.dirty,
            count_max=config.session.subscriptions_max,
            filter_bytes_max=config.session.filter_bytes_max,
        )
        self.subscribing = Subscribing(self)
        self.dirty_groups: set[GroupPort] = set()
        self.held_back: dict[SessionPort, RedeliveryPort] = {}  # see ``Redelivery``
        self.groups: dict[str, ShareGroup] = {}  # by the filter as members send it
        self.lanes = ShareLanes(clock, feeds, self.groups, shares)
        self.share_shards = ShareShards(self, shards)
        self._writer = JournalWriter(store, self.lanes)
        self.member_redelivery = MemberRedelivery(feeds, self.lanes, self.start)
        self.subscription_count = 0  # of all sessions, shared ones too
        self.pace = Pace()  # of long SUBSCRIBEs, all together
        self.disconnected_filters = DisconnectedFilters(distributor.trie, self.pace, self.start)
        self.returning = ReturningFilters(
            distributor.trie, self.disconnected_filters, self.endings, self.pace, self.start
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """End what runs by itself."""
        for task in tuple(self._tasks):
            task.cancel()

    def journal_soon(self, journal: SessionJournal) -> None:
        """Write a session's journal at the end of this turn of the loop."""
        self._writer.add(journal)
        self.dirty.add(journal.session)

    def write_soon(self) -> None:
        """Write the added records at the end of this turn of the loop."""
        self._writer.write_soon()

    def write_journals(self) -> None:
        """Write down what was added this turn; send it now, or when it is kept."""
        self._writer.write()

    # --- attach and detach

    def attach(self, session: SessionPort, connection: SessionConnection) -> None:
        """Start delivery: messages in flight first, then missed ones, then new ones."""
        session.is_attached = True
        session.outbox.window = min(
            connection.receive_maximum, self.config.session.inflight_max
        )
        if session.reads_log:
            session.behind = self._positions_to_read(session, session.positions)
        session.positions = {}
        # New messages wait for old ones, also those of groups.
        session.is_redelivering = session.outbox.count > 0
        forbidden = self.returning.take(session)
        self.endings.attach(session, is_checked=forbidden is not None)
        if forbidden is None:
            self._put_in_force(session)
        else:
            session.forbidden = forbidden
            session.forget_retained(forbidden)
            for name in session.groups.keys() - forbidden:
                put_in_force(self, session, name)
        if session.is_redelivering:
            self.start(redeliver(session, connection))
        else:
            session.go_on()

    def _put_in_force(self, session: SessionPort) -> None:
        session.forbidden = forbidden_to(session)
        session.forget_retained(session.forbidden)
        self.disconnected_filters.come_back(session, _own_filters(session, session.forbidden))
        for name in tuple(session.subscriptions):
            if name not in session.forbidden:
                put_in_force(self, session, name)

    def detach(self, session: SessionPort) -> None:
        """Store the positions of a session whose connection has gone."""
        self.write_journals()
        self.endings.detach(session)
        for slow_receiver in tuple(session.slow_receivers.values()):
            slow_receiver.leave()
        self.held_back.pop(session, None)
        self.leave_catch_ups(session, session.behind)  # this sets its offsets
        session.positions = self.positions_of(session)
        session.is_attached = False
        session.connection = None
        session.is_redelivering = False
        if session.on_progress is not None:
            session.on_progress()
        self.disconnected_filters.leave(session, _own_filters(session, session.subscriptions))
        session.behind = {}
        for group in tuple(session.groups.values()):
            self.part(group, session)

    def positions_of(self, session: SessionPort) -> dict[int, int]:
        """Return the offsets of a session by partition id; empty when it reads no log."""
        if not session.reads_log:
            return {}
        if not session.is_attached:
            return session.positions
        return {**self.feeds.live_offsets(), **session.behind}

    def _positions_to_read(
        self, reader: SessionPort | GroupPort, positions: dict[int, int]
    ) -> dict[int, int]:
        """Return the offsets where a reader is behind; more than ``backlog_max`` is skipped.

        A partition that was created while it was disconnected is read from its beginning. In one
        of another node a reader is always behind: it goes on there when the node serves it.
        """
        behind: dict[int, int] = {}
        for partition_id in self.feeds.away if positions else ():
            start = self.feeds.away_start(partition_id)
            behind[partition_id] = positions.get(partition_id, start)
        for feed in self.feeds if positions else ():
            partition_id = feed.partition_id
            if partition_id in behind:  # it is leaving
                continue
            offset = positions.get(partition_id, feed.log_start_offset)
            oldest = feed.live_offset - self.config.session.backlog_max
            if offset < oldest:
                reader.on_skipped(oldest - offset)
            if max(offset, oldest) < feed.live_offset:
                behind[partition_id] = max(offset, oldest)
        return behind

    # --- subscriptions

    def add_subscription(
        self, session: SessionPort, name: str, subscription: Subscription
    ) -> None:
        """Add a subscription of a session, in place of one of that name."""
        if name not in session.subscriptions:
            self.subscription_count += 1
            session.filter_bytes += filter_bytes(name)
        session.subscriptions[name] = subscription
        if name in session.forbidden:  # SUBSCRIBE has checked the rules
            session.forbidden -= {name}
        if subscription.group is None:
            if session.is_attached:
                self.distributor.trie.add(subscription, session)
            return
        group = self.group(subscription.group, subscription.topic_filter)
        is_first = not group.is_kept or group.is_parked
        group.members[session] = subscription
        group.update_is_kept()
        session.groups[name] = group
        if session.is_attached:
            self.join(group, session)
        if is_first and session.is_kept:  # SUBACK promises messages from here on
            group.keep()
            if self.store.has_place_for(group):
                self.store.put_group(group, self.positions_of_group(group))
            else:
                self.lanes.open_all(group)

    def drop_subscription(self, session: SessionPort, name: str) -> None:
        """Remove a subscription of a session."""
        subscription = session.subscriptions.pop(name)
        self.subscription_count -= 1
        session.filter_bytes -= filter_bytes(name)
        if name in session.forbidden:
            session.forbidden -= {name}
        if subscription.group is None:
            self.distributor.trie.remove(subscription.topic_filter, session)
            session.forget_retained((name,))
            self.forget_replaced(session, name)
        else:
            self._quit(session.groups.pop(name), session)

    @staticmethod
    def forget_replaced(session: SessionPort, name: str) -> None:
        """Forget replaced versions of a subscription, for a receiver behind at QoS 0."""
        for slow_receiver in session.slow_receivers.values():
            slow_receiver.replaced.pop(name, None)

    def end(self, session: SessionPort) -> None:
        """End a session: return its shared messages to the groups."""
        self.lanes.end(session)
        for group in tuple(session.groups.values()):
            self._quit(group, session)
        session.groups.clear()
        self.subscription_count -= len(session.subscriptions)
        session.subscriptions.clear()  # a SUBSCRIBE that fails later finds nothing to undo
        session.retained_scans.clear()
        session.ended = None
        session.journal.close()
        self.dirty.discard(session)

    # --- shared subscriptions

    def group(self, name: str, topic_filter: str) -> ShareGroup:
        """Return a shared subscription, made when there is none."""
        made = ShareGroup(name, topic_filter, self)
        return self.groups.setdefault(made.written, made)

    def restore_member(self, session: SessionPort, subscription: Subscription) -> None:
        """Restore a member of a group."""
        assert subscription.group is not None
        group = self.group(subscription.group, subscription.topic_filter)
        group.members[session] = subscription
        group.update_is_kept()
        session.groups[group.written] = group

    def join(self, group: GroupPort, session: SessionPort) -> None:
        """Add a connected member; the first one continues at the group's positions."""
        was_offline = not group.online
        if session not in group.online:
            group.online.append(session)
        best = max(group.members.values(), key=lambda one: one.qos)
        self.distributor.trie.add(
            Subscription(group.topic_filter, group=group.name, qos=best.qos), group
        )
        if len(group.online) == 1 and group.positions:
            group.behind = self._positions_to_read(group, group.positions)
            group.positions = {}
        elif was_offline:
            group.behind = self.feeds.away_ends()
        group.update_is_kept()
        if session.is_kept:
            group.keep()
            self.dirty_groups.add(group)
        group.go_on()

    def part(self, group: GroupPort, session: SessionPort) -> None:
        """Remove a disconnected member; without any other, the group keeps its positions."""
        if session not in group.online:
            return
        group.online.remove(session)
        group.update_is_kept()
        if group.online:
            return
        self.leave_catch_ups(group, group.behind)
        group.positions = self.positions_of_group(group)
        group.behind = {}
        self.distributor.trie.remove(group.topic_filter, group)
        if group.is_kept:
            self.store.put_group(group, group.positions)

    def _quit(self, group: GroupPort, session: SessionPort) -> None:
        """Remove a member that has unsubscribed, or whose session is over."""
        self.part(group, session)
        group.members.pop(session, None)
        group.update_is_kept()
        if not group.members:
            self.share_shards.end(group)
        elif group.online:
            group.go_on()

    def positions_of_group(self, group: GroupPort) -> dict[int, int]:
        """Return the offsets of a group by partition id."""
        if not group.online and group.positions:
            return group.positions
        return {**self.feeds.live_offsets(), **group.behind}

    def depart(self, session: SessionPort) -> None:
        """Forget a session that has left the node; its groups stay."""
        for group in session.groups.values():
            group.members.pop(session, None)
            group.update_is_kept()
            if not group.members:
                group.park()
        session.groups.clear()
        self.subscription_count -= len(session.subscriptions)
        session.subscriptions.clear()  # a SUBSCRIBE that fails later finds nothing to undo
        session.journal.close()
        self.dirty.discard(session)

    # --- reading the log

    def catch_up(self, follower: Follower) -> None:
        """Serve a follower that is behind."""
        away = self.feeds.away
        for partition_id in tuple(follower.behind):
            if partition_id in away:
                continue
            catch_up = self.feeds.catch_up(partition_id)
            if catch_up is None:
                del follower.behind[partition_id]
            else:
                catch_up.add(follower)

    def catch_up_anew(self, session: SessionPort) -> None:
        """Look up again what was found for a session that is behind, and not sent yet."""
        followers: list[Follower] = [session, *session.slow_receivers.values()]
        for follower in followers:
            self.leave_catch_ups(follower, follower.behind)
            self.catch_up(follower)

    def note_away(self, session: SessionPort) -> None:
        """Note where a session is in the partitions of other nodes: so far, where they left."""
        if self.feeds.away and session.is_attached and session.reads_log:
            for partition_id, offset in self.feeds.away.items():
                session.behind.setdefault(partition_id, offset)

    def stop_catching_up(self, session: SessionPort) -> None:
        """End the catching up of a session: it is live everywhere."""
        self.leave_catch_ups(session, session.behind)
        session.behind = self.feeds.away_ends()

    def leave_catch_ups(self, follower: Follower, behind: Iterable[int]) -> None:
        """End the catching up of a follower in partitions; its offsets are set."""
        for partition_id in behind:
            catch_up = self.feeds.catch_up(partition_id)
            if catch_up is not None:
                catch_up.discard(follower)

    # --- tasks

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run a task over several turns of the loop, until the node stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _own_filters(session: SessionPort, names: Iterable[str]) -> list[str]:
    """Return the topic filters of those subscriptions that are not shared."""
    found = [session.subscriptions[name] for name in names]
    return [one.topic_filter for one in found if one.group is None]
