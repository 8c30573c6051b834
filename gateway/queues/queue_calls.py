"""Service ``queue``: what a node asks the owner of a queue's partitions.

A request names partitions that lie in one shard. A node that has not got one of them open, or that
loses it meanwhile, is not the owner. All requests may be sent again when their answer is lost,
but one: messages that are returned without counting the attempt may be in flight again, for the
same holder by the same attempt, and a second request would return them again.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from uuid import UUID

from features.queue.model import Order
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    NotLeader,
    NotOwner,
    Overloaded,
    PolicyViolation,
    StorageUnavailable,
    TopicNotFound,
    as_value,
)
from gateway.model import Record
from gateway.queues.browsing import Browsed, browse
from gateway.queues.call_payloads import (
    BrowsedMessages,
    BrowseMessages,
    CountedPartitions,
    CountMessages,
    PartitionCounts,
    PurgeMessages,
    QueueCodec,
    QueueRef,
    SettledCounts,
    SettleMessages,
)
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.purging import PurgeGate
from gateway.queues.queue import BROWSED_MAX, Queue
from gateway.shards.model import (
    DONE,
    NOT_OWNER,
    UNKNOWN,
    Codec,
    OnReply,
    Reply,
    Room,
    Sink,
    StreamSource,
    refused,
)

SERVICE: Final = "queue"
BROWSES_MAX: Final = 64  # under way for other nodes; more are refused
BROWSED_BYTES_MAX: Final = 4 * 1024 * 1024  # of one reply, which has one message at least
SETTLED_MAX: Final = 1_000_000  # messages of one request: those that a queue may have in flight

Find = Callable[[UUID, str], Queue | None]


class QueueService:
    """Serves the partitions of queues of this node's shards. Loop only."""

    codec: Codec = QueueCodec()

    def __init__(self, context: QueueContext, find: Find) -> None:
        """``find`` returns the queue of a topic's uuid and a group."""
        self._context = context
        self._find = find
        self._browses = 0

    def call(self, room: Room, payload: object, on_reply: OnReply) -> None:
        """Serve a request of ``gateway.queues.call_payloads``.

        Errors: ``TopicNotFound``, ``InvalidRequest``, ``Overloaded``; ``PolicyViolation`` for a
        purge in key order.
        """
        try:
            self._serve(room, payload, on_reply)
        except NotOwner:  # it is being opened, or closed
            on_reply(NOT_OWNER)

    def open_stream(self, room: Room, payload: object, sink: Sink) -> StreamSource:
        """Refuse: there are no streams of queues."""
        del room, payload, sink
        raise InvalidRequest("queues have no streams")

    def _serve(self, room: Room, payload: object, on_reply: OnReply) -> None:
        if isinstance(payload, CountMessages):
            lanes = self._lanes(room, payload.queue, payload.numbers)
            counted = CountedPartitions(tuple(map(_counts_of, lanes)))
            on_reply(DONE._replace(payload=counted))
        elif isinstance(payload, BrowseMessages):
            self._start_browse(room, payload, on_reply)
        elif isinstance(payload, PurgeMessages):
            self._purge(room, payload, on_reply)
        else:
            assert isinstance(payload, SettleMessages)
            self._settle(room, payload, on_reply)

    # --- look-up

    def _queue(self, ref: QueueRef) -> Queue:
        queue = self._find(ref.topic_uuid, ref.group)
        if queue is None:
            raise TopicNotFound(f"no queue of group {ref.group[:80]!r} of this topic")
        return queue

    def _lanes(self, room: Room, ref: QueueRef, numbers: Iterable[int]) -> list[QueueLane]:
        """Return lanes that are open. Errors: ``NotLeader``; as ``call``."""
        queue = self._queue(ref)
        by_number = {lane.number: lane for lane in queue.lanes}
        lanes = []
        for number in numbers:
            partition = self._context.broker.partition(queue.topic, number)
            if partition.shard != room.shard:
                raise InvalidRequest(f"partition {number} is in shard {partition.shard}")
            lane = by_number.get(number)
            if lane is None:
                raise NotLeader(f"partition {number} is being opened")
            lanes.append(lane)
        return lanes

    # --- browsing

    def _start_browse(self, room: Room, request: BrowseMessages, on_reply: OnReply) -> None:
        [lane] = self._lanes(room, request.queue, (request.number,))
        if not 1 <= request.messages_max <= BROWSED_MAX:
            raise InvalidRequest(
                f"browse 1 to {BROWSED_MAX} messages, not {request.messages_max}"
            )
        if self._browses >= BROWSES_MAX:
            raise Overloaded(f"{BROWSES_MAX} other nodes' looks into queues are under way")
        self._browses += 1
        self._context.start(self._answer_browse(lane, request, on_reply))

    async def _answer_browse(
        self, lane: QueueLane, request: BrowseMessages, on_reply: OnReply
    ) -> None:
        reply = UNKNOWN  # unless it ends: the node may stop
        try:
            reply = await self._browse(lane, request)
        except GatewayError as error:
            reply = refused(as_value(error))
        finally:
            self._browses -= 1
            on_reply(reply)

    async def _browse(self, lane: QueueLane, request: BrowseMessages) -> Reply:
        start = request.from_offset
        starts = {} if start is None else {lane.number: start}
        found = await browse(self._context, [lane], request.messages_max, starts)
        if lane.partition.is_gone:  # meanwhile: the next owner may have handed them out
            return NOT_OWNER
        return DONE._replace(payload=_cut(found))

    # --- changes

    def _purge(self, room: Room, request: PurgeMessages, on_reply: OnReply) -> None:
        """Purge lanes; in key order the queue's row has the ends of all partitions together."""
        lanes = self._lanes(room, request.queue, [number for number, _ in request.ends])
        if self._queue(request.queue).settings.order is Order.KEY:
            raise PolicyViolation("a queue in key order is purged by its own node, as a whole")
        if not lanes:
            on_reply(DONE)
            return
        gate = PurgeGate(len(lanes), partial(_answer_purge, on_reply))
        for lane, (_, end_offset) in zip(lanes, request.ends, strict=True):
            effects = lane.lane.purge(min(end_offset, lane.partition.stable_end))
            lane.done(effects, gate.one)
            lane.feed_more()

    def _settle(self, room: Room, request: SettleMessages, on_reply: OnReply) -> None:
        """Settle ranges; a range is not taken as a whole where some of it is settled already."""
        self._lanes(room, request.queue, (request.number,))
        ranges = [one.settled_range for one in request.ranges]
        if sum(len(one.offsets) for one in ranges) > SETTLED_MAX:
            raise InvalidRequest(f"settle {SETTLED_MAX} messages at most")
        self._queue(request.queue).settle_ranges(
            request.number,
            ranges,
            partial(_answer_settled, on_reply),
            holder=request.holder.number,
            delay_ms=request.delay_ms,
            reason=request.reason,
        )


def _counts_of(lane: QueueLane) -> PartitionCounts:
    end_offset = lane.partition.stable_end
    return PartitionCounts(lane.number, *lane.lane.counts(end_offset), end_offset)


def _cut(found: list[Browsed]) -> BrowsedMessages:
    """Return the first messages, as many as a reply may hold."""
    room_bytes = BROWSED_BYTES_MAX
    for index, browsed in enumerate(found):
        room_bytes -= _bytes_of(browsed.record)
        if room_bytes < 0 and index:
            return BrowsedMessages(tuple(found[:index]), is_cut=True)
    return BrowsedMessages(tuple(found), is_cut=False)


def _bytes_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _answer_purge(on_reply: OnReply, error: StorageUnavailable | None) -> None:
    on_reply(DONE if error is None else refused(error))


def _answer_settled(
    on_reply: OnReply, counts: list[int], error: StorageUnavailable | None
) -> None:
    reply = DONE._replace(payload=SettledCounts(tuple(counts)))
    on_reply(reply if error is None else refused(error))
