"""Shared subscriptions: the members of a group share what matches (MQTT 5.0 section 4.8.2).

A group reads the log as one: it has positions of its own, and each message goes to one member
that has room. ``round_robin`` deals what came together out in equal shares, ``sticky`` stays
with a member until its window is full, ``hash_topic`` gives a topic to the same member for as
long as the members stay the same, so that its order is kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias
from zlib import crc32

from adapters.mqtt.delivery.at_most_once import EXPIRED, expiry_s_of, send_part
from adapters.mqtt.ports import ContextPort, FeedPort, SessionPort, SubscriberMatch
from adapters.mqtt.records.mixed_topic_batch import MixedTopicBatch
from adapters.mqtt.shared_subscriptions.lanes import UNTRACKED, LaneGroup, Piece, ShareLane
from adapters.mqtt.shared_subscriptions.member_redelivery import ReturningGroup
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.wire import EXACTLY_ONCE, PublishRun

Take: TypeAlias = Callable[[int, int, SessionPort], list[Piece]]


class LaneOpener(Protocol):
    """The lanes of all groups; see ``lanes.ShareLanes``."""

    def keep(self, group: LaneGroup) -> None:
        """Record what members of a group hold from now on."""
        ...

    def forget(self, group: LaneGroup) -> None:
        """Forget what members of a group held."""
        ...

    def open(self, group: LaneGroup, feed: FeedPort, first_offset: int) -> ShareLane:
        """Return the lane of a group's partition, made when it has none."""
        ...


class Dealer(Protocol):
    """The delivery of messages that were given back; see ``member_redelivery``."""

    def deal(self, group: ReturningGroup) -> None:
        """Deliver what was given back, as far as members have room."""
        ...


class GroupServices(ContextPort, Protocol):
    """Services that a group uses; see ``sessions.session_context``."""

    @property
    def lanes(self) -> LaneOpener:
        """The lanes of all groups."""
        ...

    @property
    def member_redelivery(self) -> Dealer:
        """The delivery of messages that were given back."""
        ...


class ShareGroup:
    """The members of ``$share/<name>/<filter>``; it reads as a session does (``catch_up``)."""

    __slots__ = (
        "behind",
        "context",
        "is_kept",
        "is_parked",
        "lanes",
        "members",
        "name",
        "online",
        "positions",
        "returning",
        "topic_filter",
        "turn",
        "written",
    )

    is_group: Literal[True] = True

    def __init__(self, name: str, topic_filter: str, context: GroupServices) -> None:
        self.name = name
        self.topic_filter = topic_filter
        self.context = context
        self.members: dict[SessionPort, Subscription] = {}
        self.online: list[SessionPort] = []
        self.behind: dict[int, int] = {}
        self.positions: dict[int, int] = {}  # while no member is connected
        self.lanes: dict[int, ShareLane] = {}  # by partition id, of those that had messages
        self.returning: set[ShareLane] = set()  # they go on when what they have back is dealt
        self.turn = 0
        prefix = name if name == "$queue" else f"$share/{name}"
        # The filter as members write it: what sessions know the group by.
        self.written = f"{prefix}/{topic_filter}"
        self.is_kept = False
        self.is_parked = False

    def keep(self) -> None:
        """See ``GroupPort``."""
        self.context.lanes.keep(self)

    def end(self) -> None:
        """See ``GroupPort``."""
        self.context.lanes.forget(self)

    def update_is_kept(self) -> None:
        """Members have changed: say whether a session outlives its connection, and so the group."""
        self.is_kept = self.is_parked or any(member.is_kept for member in self.members)

    def park(self) -> None:
        """See ``GroupPort``."""
        self.is_parked = self.is_kept = True
        self.keep()

    def wanted_filters(self) -> Iterator[str]:
        """See ``FollowerPort``."""
        yield self.topic_filter

    @property
    def is_ready(self) -> bool:
        """See ``CatchUp``."""
        return any(member.is_ready for member in self.online)

    def offer(self, run: PublishRun, match: "SubscriberMatch", feed: FeedPort | None) -> None:
        """Deal out what is new, or note from where on the log is to be read."""
        count = len(run.payloads)
        if feed is None or not run.qos:
            self._deal_once(run)
            return
        if feed.partition_id in self.behind:
            return
        taken = self.take(run, 0, count, match, feed)
        if taken < count:
            self.behind[feed.partition_id] = run.base_offset + taken

    def take(
        self,
        run: PublishRun,
        start: int,
        stop: int,
        match: "SubscriberMatch",  # noqa: ARG002 - each member has a subscription of its own
        feed: FeedPort,
    ) -> int:
        """See ``CatchUp``. What was given back goes first: nothing new is taken until it has."""
        if not run.qos:
            return stop - start
        lane = self.lanes.get(feed.partition_id)
        if lane is None:
            lane = self.context.lanes.open(self, feed, run.base_offset + start)
        elif lane in self.returning:
            self.context.member_redelivery.deal(self)
            return 0
        if expiry_s_of(run, self.context.clock) == EXPIRED:
            self.context.counters.expired += stop - start
            return stop - start
        if self.is_kept:
            self.context.dirty_groups.add(self)

        def take_new(at: int, count: int, member: "SessionPort") -> list[Piece]:
            first_offset = run.base_offset + at
            if not self.members[member].qos:
                return [Piece(first_offset, count, UNTRACKED)]
            return lane.take_new(first_offset, count, member.holder)

        return self._deal(run, start, stop, lane, take_new)

    def take_mixed_topics(
        self,
        mixed: MixedTopicBatch,  # noqa: ARG002 - members are picked by topic
        indexes: range,  # noqa: ARG002
        matches: "Mapping[PublishRun, SubscriberMatch]",  # noqa: ARG002
        feed: FeedPort,  # noqa: ARG002
    ) -> None:
        """See ``CatchUp``: each message is dealt by itself."""
        return

    def deal_returned(self, run: PublishRun, start: int, stop: int, lane: ShareLane) -> int:
        """Deal out what the lane has back, of which this is the lowest; return how many went."""
        if expiry_s_of(run, self.context.clock) == EXPIRED:
            self.context.counters.expired += stop - start
            lane.drop_returned(stop - start)
            return stop - start

        def take_again(_at: int, count: int, member: "SessionPort") -> list[Piece]:
            return lane.take_returned(count, member.holder)

        return self._deal(run, start, stop, lane, take_again)

    def _deal(self, run: PublishRun, start: int, stop: int, lane: ShareLane, take: Take) -> int:
        """Deal out messages to members who have room; return how many went."""
        first = start
        while start < stop:
            members = self._candidates()
            if not members:
                break
            member = self._pick(members, run.topic)
            if not member.is_ready:
                break
            share = -(-(stop - first) // len(members)) if self._deals else stop - start
            count = min(share, stop - start, lane.room)
            if self.members[member].qos:
                count = min(count, member.outbox.room)
            if not count:
                break  # the lane is full: whoever settles something of it comes back here
            for piece in take(start, count, member):
                self._send(run, piece, member, lane)
            start += count
        return start - first

    def _send(
        self, run: PublishRun, piece: Piece, member: "SessionPort", lane: ShareLane
    ) -> None:
        """Send what a member was dealt; what ends with that is done."""
        subscription = self.members[member]
        qos = min(run.qos, subscription.qos)
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        retain = run.retain and subscription.retain_as_published
        start = piece.first_offset - run.base_offset
        stop = start + piece.length
        sent: Sequence[tuple[int, int]] = ()
        if qos:
            sent = member.send_run(
                run,
                start,
                stop,
                qos=qos,
                retain=retain,
                identifiers=identifiers,
                expiry_s=expiry_s_of(run, self.context.clock),
                partition_id=lane.partition_id,
                group=self.written,
                attempt=piece.attempt,
            )
        else:
            send_part(member, run, start, stop, retain=retain, identifiers=identifiers)
        if qos == EXACTLY_ONCE and not member.is_kept:
            sent = ()  # nobody else may have it, and after a crash nobody says that it left
        if sent != [(start, stop)] and piece.attempt != UNTRACKED:
            lane.done_but(piece, run.base_offset, sent)

    def _candidates(self) -> "Sequence[SessionPort]":
        """Return who may be picked: a topic that is one member's waits for that member."""
        if self.context.config.shared_strategy == "hash_topic":
            return self.online
        return [one for one in self.online if one.is_ready]

    @property
    def _deals(self) -> bool:
        return self.context.config.shared_strategy == "round_robin"

    def _pick(self, members: "Sequence[SessionPort]", topic: bytes) -> "SessionPort":
        strategy = self.context.config.shared_strategy
        if strategy == "hash_topic":
            return members[crc32(topic) % len(members)]
        if strategy == "round_robin":
            self.turn += 1
        return members[self.turn % len(members)]

    def _deal_once(self, run: PublishRun) -> None:
        """Give QoS 0 to members who read fast enough; a run in shares, as ``take`` does."""
        start, total = 0, len(run.payloads)
        members = [one for one in self.online if one.is_ready] or self.online
        while start < total and members:
            member = self._pick(members, run.topic)
            share = -(-total // len(members)) if self._deals else total
            subscription = self.members[member]
            stop = min(start + share, total)
            send_part(
                member,
                run,
                start,
                stop,
                retain=run.retain and subscription.retain_as_published,
                identifiers=(subscription.identifier,) if subscription.identifier else (),
            )
            start = stop

    def go_on(self) -> None:
        """A member may have room again."""
        if self.returning:
            self.context.member_redelivery.deal(self)
        if self.behind:
            self.context.catch_up(self)

    def on_skipped(self, count: int) -> None:
        """See ``CatchUp``."""
        self.context.counters.backlog_skipped += count
