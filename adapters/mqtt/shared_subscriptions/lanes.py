"""Messages of shared subscriptions by member: a lane for each group and partition.

A lane hears of messages when they are dealt out, each under the holder of a member's session, so
it knows what is open. What a session had not settled at its end is given back, to go to other
members with the attempt counted (``member_redelivery``). QoS 2 may go to nobody else (MQTT 5.0
section 4.8.2): with a session that is not kept it is done for the group as soon as it has left.

What lanes change in a turn of the loop is appended with what sessions write in that turn. After
a crash open messages stay with the kept sessions whose journal has them; the others are free.

    journal       the internal topic ``__mqtt_shares``, see ``gateway.queues.journal``; of a lane
                  the group is the filter as members write it, ``$share/<name>/<filter>``
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple, Protocol

from adapters.mqtt.inflight.outbox import Settled, Unsettled
from adapters.mqtt.ports import FeedPort, GroupPort, SessionPort
from adapters.mqtt.reading.feed_set import FeedSet
from adapters.mqtt.wire import EXACTLY_ONCE
from features.queue.journal import entry_of
from features.queue.lane import Lane
from features.queue.model import Effects, Policy, Run
from gateway.clock import Clock
from gateway.coalescer import Part
from gateway.errors import NotLeader, StorageUnavailable
from gateway.queues.journal import QueueJournal, lane_id

ROOM_BYTES: Final = 16 << 20  # of the journal, beside twice its live bytes
IN_FLIGHT_MAX: Final = 1_000_000  # messages of one lane that all members have
LEASE_MS: Final = 100 * 365 * 86_400_000  # only its session's end takes a message from a member

OVER: Final = 1 << 62  # next offset of a stored lane whose group is over

UNTRACKED: Final = 0
"""As an attempt: the message was not handed out by a lane; it left at QoS 0."""

POLICY: Final = Policy(in_flight_max=IN_FLIGHT_MAX)
_NOBODY: Final = 1  # the holder of what is done in the same call


class Piece(NamedTuple):
    """Messages in a row that were handed out equally often."""

    first_offset: int
    length: int
    attempt: int


class LaneGroup(GroupPort, Protocol):
    """A group as its lanes see it; see ``groups.ShareGroup``."""

    lanes: "dict[int, ShareLane]"
    returning: "set[ShareLane]"


class ShareLane:
    """One partition of one group. See ``gateway.queues.journal.Journaled``."""

    __slots__ = (
        "_lanes",
        "group",
        "has_left",
        "is_ahead",
        "is_gone",
        "is_stored",
        "lane",
        "lane_id",
        "partition_id",
        "shard",
    )

    def __init__(
        self, lanes: "ShareLanes", group: LaneGroup, feed: FeedPort, lane: Lane
    ) -> None:
        self._lanes = lanes
        self.group = group
        self.lane = lane
        self.partition_id = feed.partition_id
        self.shard = feed.partition.shard
        self.lane_id = share_lane_id(feed, group.written)
        self.is_ahead = True
        self.has_left = False
        self.is_gone = False  # a group that ends purges its lanes, and writes that
        self.is_stored = False  # the journal may have something of it

    def snapshot(self) -> bytes:
        """See ``Journaled``."""
        return self.lane.snapshot()

    @property
    def room(self) -> int:
        """Number of messages that may still be in flight."""
        return IN_FLIGHT_MAX - self.lane.counts(0).in_flight

    def take_new(self, first_offset: int, count: int, holder: int) -> list[Piece]:
        """Hand out messages that the lane has not heard of; there is ``room`` for them.

        Those that somebody has already, after a restart, are left out.
        """
        now = self._lanes.clock.steady_unix_ms()
        self.lane.feed((Run(first_offset, first_offset + count - 1, None),), now)
        return self._take(count, holder, now)

    def take_returned(self, count: int, holder: int) -> list[Piece]:
        """Hand out the lowest of what was given back."""
        return self._take(count, holder, self._lanes.clock.steady_unix_ms())

    def _take(self, count: int, holder: int, now: int) -> list[Piece]:
        ranges, effects = self.lane.take_ranges(
            count, holder=holder, lease_ms=LEASE_MS, now=now
        )
        self._lanes.note(self, effects)
        return [Piece(one.start, len(one), attempt) for one, attempt, _, _ in ranges]

    def done(self, ids: Sequence[tuple[int, int]]) -> None:
        """Settle messages, as (offset, attempt)."""
        effects = self.lane.ack(ids)[1]
        self.lane.kept(self.lane.ack_number)  # a snapshot says it, should the entry be refused
        self._lanes.note(self, effects)
        if effects.wake:
            self.group.go_on()  # the lane was full

    def done_but(self, piece: Piece, base_offset: int, kept: Sequence[tuple[int, int]]) -> None:
        """Note that of messages which were handed out only some are still in flight."""
        at = piece.first_offset
        ids: list[tuple[int, int]] = []
        for start, stop in (*kept, (at - base_offset + piece.length, 0)):
            ids += ids_of(at, base_offset + start - at, piece.attempt)
            at = base_offset + stop
        self.done(ids)

    def drop_returned(self, count: int) -> None:
        """Settle the lowest requeued message: it was deleted, or no member wants it."""
        for first_offset, length, attempt in self.take_returned(count, _NOBODY):
            self.done(ids_of(first_offset, length, attempt))

    def end_holder(self, holder: int) -> None:
        """A session is over: others may have what it had."""
        self.lane.end_holder(holder, self._lanes.clock.steady_unix_ms())
        if self.lane.returned_count:
            self.group.returning.add(self)


class ShareLanes:
    """The lanes of all groups. ``groups`` are by the filter as members write it."""

    def __init__(
        self,
        clock: Clock,
        feeds: FeedSet,
        groups: "Mapping[str, LaneGroup]",
        journal: QueueJournal,
    ) -> None:
        self.clock = clock
        self.journal = journal
        self._feeds = feeds
        self._groups = groups
        self._pending: dict[ShareLane, bytearray] = {}
        self._last_holder = _NOBODY

    def new_holder(self) -> int:
        """Return what a new session holds messages by."""
        self._last_holder += 1
        return self._last_holder

    def open(self, group: LaneGroup, feed: FeedPort, next_offset: int) -> ShareLane:
        """Return the lane of a group and a feed; a new one begins at an offset."""
        lane = group.lanes.get(feed.partition_id)
        if lane is None:
            lane = ShareLane(self, group, feed, Lane(POLICY, next_offset))
            group.lanes[feed.partition_id] = lane
        return lane

    def open_all(self, group: LaneGroup) -> None:
        """Store positions of a group whose own record is with another node: a lane has each."""
        positions = group.behind if group.online else group.positions
        for feed in self._feeds:
            if (
                feed.partition_id not in group.lanes
                and feed.partition_id not in self._feeds.away
            ):
                offset = positions.get(feed.partition_id, feed.live_offset)
                self.pend(self.open(group, feed, offset))

    def forget(self, group: LaneGroup) -> None:
        """A group is over: one of its name that comes later does not have its messages."""
        for lane in group.lanes.values():
            self._pending.pop(lane, None)
            if lane.is_stored:
                lane.lane.seek(OVER, end_offset=OVER)
                lane.is_ahead = True
                self.pend(lane)
        group.lanes.clear()
        group.returning.clear()

    def drop_partition(self, group: LaneGroup, partition_id: int) -> None:
        """A partition is gone."""
        lane = group.lanes.pop(partition_id, None)
        if lane is not None:
            self._pending.pop(lane, None)
            group.returning.discard(lane)

    # --- what members have settled

    def settle(self, settled: Iterable[Settled]) -> None:
        """Members have settled messages, or they are not there any more."""
        found: dict[ShareLane, list[tuple[int, int]]] = {}
        for run, start, stop in settled:
            group = self._groups.get(run.group)
            lane = None if group is None else group.lanes.get(run.partition_id)
            if lane is not None:
                ids = ids_of(run.first_offset + start, stop - start, run.attempt)
                found.setdefault(lane, []).extend(ids)
        for lane, ids in found.items():
            lane.done(ids)

    def end(self, session: "SessionPort") -> None:
        """A session is over: give back what it had not settled, but of QoS 2."""
        self.settle(session.outbox.take_settled())
        unsettled = [one for one in session.outbox.unsettled() if one.inflight.group]
        self.settle(
            Settled(one.inflight, one.start, one.stop)
            for one in unsettled
            if one.inflight.qos == EXACTLY_ONCE
        )
        lanes = (self._lane_of(one) for one in unsettled)
        for lane in {lane for lane in lanes if lane is not None}:
            lane.end_holder(session.holder)

    def _lane_of(self, unsettled: Unsettled) -> ShareLane | None:
        group = self._groups.get(unsettled.inflight.group)
        return None if group is None else group.lanes.get(unsettled.inflight.partition_id)

    # --- writing

    def note(self, lane: ShareLane, effects: Effects) -> None:
        """Record a change in this turn, unless the group ends with the node."""
        entry = entry_of(effects)
        if entry is None:
            return
        group = lane.group
        if not group.is_kept:
            lane.is_ahead = True
            return
        self.pend(lane)
        self._pending[lane] += entry

    def keep(self, group: LaneGroup) -> None:
        """The group outlives its connections from now on: have it written down."""
        for lane in group.lanes.values():
            if lane.is_ahead:
                self.pend(lane)

    def pend(self, lane: ShareLane) -> None:
        """Write a lane's changes, or a snapshot when it is ahead, with what is appended next."""
        if lane not in self._pending:
            lane.group.context.write_soon()
            lane.is_stored = True
            self._pending[lane] = bytearray()

    @property
    def is_pending(self) -> bool:
        """Whether something is to be written down."""
        return bool(self._pending)

    def take_pending(self) -> tuple[list[ShareLane], list[Part]]:
        """Return what is to be appended; ``written`` is called when that has ended.

        A lane that ``is_ahead`` now had a piece of its snapshot refused: nothing of it may be
        appended.
        """
        pending, self._pending = self._pending, {}
        lanes: list[ShareLane] = []
        parts: list[Part] = []
        for lane, entry in pending.items():
            try:
                parts.append(self.journal.part(lane, bytes(entry)))
            except NotLeader:  # its shard has left, with what the next owner is to know
                lane.has_left = True
            else:
                lanes.append(lane)
        return lanes, parts

    def written(self, lanes: Sequence[ShareLane], error: StorageUnavailable | None) -> None:
        """An append is durable; what was refused goes with the next, by a snapshot."""
        self.journal.note(lanes, error)
        for lane in lanes if error is not None else ():
            if lane.has_left:
                continue
            group = self._groups.get(lane.group.written)
            latest = None if group is None else group.lanes.get(lane.partition_id)
            if latest in {None, lane}:
                self._pending.setdefault(lane, bytearray())

    def kept(self) -> Iterator[ShareLane]:
        """Yield the lanes that are written down."""
        for group in self._groups.values():
            if group.is_kept:
                yield from group.lanes.values()


def ids_of(first_offset: int, length: int, attempt: int) -> list[tuple[int, int]]:
    """Return the ids of messages in a row, as ``Lane.ack`` wants them."""
    offsets = range(first_offset, first_offset + length)
    return list(zip(offsets, repeat(attempt, length), strict=True))


def share_lane_id(feed: FeedPort, written: str) -> bytes:
    """Return the key of a lane's entries."""
    return lane_id(feed.partition.topic.uuid, feed.partition.number, written)
