"""Redelivery: messages in flight at the end of a connection are sent again, in order, with DUP.

The messages are read again from the log or the retained messages, and have the same packet
identifiers as before (MQTT 5.0 section 4.4). A message that is no longer in the log counts as
acknowledged; so does an expired one, except at QoS 2 (MQTT-4.3.3-7). A message with a received
PUBREC continues with PUBREL, and its PUBLISH is never sent again (section 4.3.3). The window is
that of the new connection: at most its Receive Maximum of messages are in flight (section 4.9),
and no more bytes than the client keeps up with.
"""

import asyncio
from collections.abc import Coroutine

import structlog

from adapters.mqtt.codec import encode_acks
from adapters.mqtt.delivery.at_most_once import EXPIRED, expiry_s_of, fitting_parts
from adapters.mqtt.delivery.publish_forms import PublishForm, form_of
from adapters.mqtt.inflight.outbox import RETAINED, Inflight, Unsettled, packet_id_of
from adapters.mqtt.ports import FeedPort, SessionConnection, SessionPort
from adapters.mqtt.records.mixed_topic_batch import end_offset
from adapters.mqtt.wire import EXACTLY_ONCE, PACKET_ID_MAX, PacketType, PublishRun
from features.ranges import RangeSet
from gateway.errors import GatewayError, NotLeader, OffsetOutOfRange

log = structlog.get_logger()


def redeliver(
    session: "SessionPort",
    connection: "SessionConnection",
) -> Coroutine[object, object, None]:
    """Send PUBREL again; return what sends the messages again and lets the session go on.

    Before the client is heard of: to a PUBREC that comes from now on the session answers.
    """
    redelivery = Redelivery(session, connection)
    redelivery.release()
    return redelivery.run()


class Redelivery:
    """Redelivery to one client. Acknowledgements arrive meanwhile, also of messages not yet resent.

    So the due messages are looked up again after each wait. It ends at the session's first
    position: no new message is sent meanwhile.

    Messages of a partition that this node does not serve stay in flight, and hold back what follows
    in that partition. ``go_on`` sends them when it is served.
    """

    def __init__(self, session: "SessionPort", connection: "SessionConnection") -> None:
        self._session = session
        self._context = session.context
        self._outbox = session.outbox
        self._connection = connection
        self._sent = RangeSet()  # again, as sequence numbers: they alone take the window
        self._held_back: set[int] = set()  # partitions
        self._end_seq = session.outbox.next_seq  # what comes later is sent for the first time

    @property
    def _is_over(self) -> bool:
        return self._session.connection is not self._connection

    def release(self) -> None:
        """Send PUBREL for each received PUBREC; these take no part of the window."""
        ids = [packet_id_of(seq) for seq in sorted(self._outbox.received)]
        if ids:
            version = self._connection.version
            self._connection.send(encode_acks(PacketType.PUBREL, ids, version))

    async def run(self) -> None:
        """Send all messages again that are due, then let the session go on."""
        await self._send_all()
        while not self._is_over and self._take_back(with_retained=False):
            await self._send_all()
        if not self._is_over:
            self._session.is_redelivering = False
            self._session.note_settled()
            self._session.go_on()

    def go_on(self) -> None:
        """Send what was held back and is here now; a run under way does so at its end."""
        if not self._session.is_redelivering and self._take_back(with_retained=True):
            self._session.is_redelivering = True
            self._context.start(self.run())

    def _take_back(self, *, with_retained: bool) -> bool:
        """Let partitions that are here now hold back nothing; return whether there are any."""
        feeds = self._context.feeds
        here = {
            one
            for one in self._held_back
            if (with_retained and one == RETAINED)
            or (feeds.get(one) is not None and one not in feeds.away)
        }
        self._held_back -= here
        if not self._held_back:
            self._context.held_back.pop(self._session, None)
        return bool(here)

    async def _send_all(self) -> None:
        seq = self._outbox.base
        while not self._is_over and (unsettled := self._next_due(seq)) is not None:
            await self._send_again(unsettled)
            self._session.note_settled()  # what is not there any more
            await asyncio.sleep(0)  # there may be thousands, and others are to be served
            seq = unsettled.inflight.first_seq + unsettled.stop

    def _next_due(self, seq: int) -> Unsettled | None:
        """Return the first messages to be sent again, from ``seq`` on."""
        for one in self._outbox.unsettled(seq):
            if one.inflight.first_seq >= self._end_seq:
                return None
            if one.is_received or one.inflight.partition_id in self._held_back:
                continue
            first_seq = one.inflight.first_seq
            for first, last in self._sent.gaps(first_seq + one.start, first_seq + one.stop - 1):
                return one._replace(start=first - first_seq, stop=last + 1 - first_seq)
        return None

    async def _send_again(self, unsettled: Unsettled) -> None:
        inflight = unsettled.inflight
        if self._is_away(inflight):
            self._hold_back(inflight)
            return
        try:
            found = await self._find(unsettled)
        except NotLeader:  # it has just left
            self._hold_back(inflight)
            return
        except GatewayError as error:  # it stays on its way, until the client is back again
            log.warning(
                "not delivered again", client=self._session.client_id[:80], error=str(error)
            )
            return
        seq = inflight.first_seq + unsettled.start
        for run, start, stop, first in found:
            first_seq = inflight.first_seq + first
            self._drop(seq, first_seq)
            seq = first_seq + stop - start
            await self._send_part(inflight, run, range(start, stop), first_seq - start)
            if self._is_over:
                return
        self._drop(seq, inflight.first_seq + unsettled.stop)

    def _hold_back(self, inflight: Inflight) -> None:
        """Keep messages in flight, and let nothing new of their partition go before them."""
        session, partition_id = self._session, inflight.partition_id
        self._held_back.add(partition_id)
        self._context.held_back[session] = self
        offset = self._context.feeds.live_offsets().get(partition_id)
        if session.reads_log and offset is not None:
            session.behind.setdefault(partition_id, offset)

    def _is_away(self, inflight: Inflight) -> bool:
        """Return whether messages are with another node: they stay in flight until they come."""
        if inflight.partition_id == RETAINED:
            return not all(map(self._context.retained.is_here, inflight.topics))
        return inflight.partition_id in self._context.feeds.away

    async def _find(self, unsettled: Unsettled) -> list[tuple[PublishRun, int, int, int]]:
        """Return (run, start, stop, index in the unsettled run) of what is still there."""
        inflight = unsettled.inflight
        if inflight.partition_id == RETAINED:
            get = self._context.retained.get
            indices = range(unsettled.start, unsettled.stop)
            messages = ((get(inflight.topics[index]), index) for index in indices)
            return [(found, 0, 1, index) for found, index in messages if found is not None]
        feed = self._context.feeds.get(inflight.partition_id)
        if feed is None:
            return []
        offset = inflight.first_offset + unsettled.start
        end = inflight.first_offset + unsettled.stop
        found = []
        while offset < end:
            runs, next_offset = await _read(feed, offset, end)
            for run in runs:
                first = max(offset, run.base_offset)
                last = min(end, end_offset(run))
                if first < last:
                    start, stop = first - run.base_offset, last - run.base_offset
                    found.append((run, start, stop, first - inflight.first_offset))
                    offset = last
            if next_offset <= offset < end and not runs:
                break
            offset = max(offset, next_offset)
        return found

    async def _send_part(
        self, inflight: Inflight, run: PublishRun, indexes: range, first_seq: int
    ) -> None:
        """Send messages of ``run`` again, as there is room for them.

        ``first_seq`` is that of place 0. Those that have expired, or are too large now, are
        settled.
        """
        at, stop = indexes.start, indexes.stop
        while not self._is_over:
            room = self._room()
            first, end = self._outbox.next_due(first_seq + at, first_seq + stop, max(room, 1))
            if first == end:
                return
            expiry_s = expiry_s_of(run, self._context.clock)
            if expiry_s == EXPIRED and inflight.qos < EXACTLY_ONCE:
                self._context.counters.expired += self._drop(first, first_seq + stop)
                return
            if room > 0:
                form = self._form(inflight, run, expiry_s)
                at = self._send(form, range(first - first_seq, end - first_seq), first_seq)
            else:
                at = first - first_seq
                await self._progress()

    def _form(self, inflight: Inflight, run: PublishRun, expiry_s: int | None) -> PublishForm:
        return form_of(
            run,
            version=self._connection.version,
            qos=inflight.qos,
            retain=inflight.retain,
            identifiers=inflight.identifiers,
            expiry_s=expiry_s,
        )

    def _send(self, form: PublishForm, indexes: range, first_seq: int) -> int:
        """Send what there is room for, as much as goes at once; return up to where all is done."""
        context, connection = self._context, self._connection
        count_max = max(context.receiver_bytes_max // form.largest_bytes, 1)
        at, stop = indexes.start, min(indexes.stop, indexes.start + count_max)
        for start, end in fitting_parts(form, at, stop, connection.packet_bytes_max):
            context.counters.too_large += self._drop(first_seq + at, first_seq + start)
            context.counters.redelivered += end - start
            connection.send(
                form.with_ids(packet_id_of(first_seq + start), start, end, dup=True)
            )
            self._sent.add(first_seq + start, first_seq + end - 1)
            at = end
        context.counters.too_large += self._drop(first_seq + at, first_seq + stop)
        return stop

    def _drop(self, first_seq: int, end_seq: int) -> int:
        """Settle what cannot be sent again and is due; return how many messages that is."""
        outbox, count = self._outbox, 0
        while True:
            first, end = outbox.next_due(first_seq, end_seq, PACKET_ID_MAX)
            if first == end:
                return count
            outbox.drop(first, end - first)
            count += end - first
            first_seq = end

    def _room(self) -> int:
        """Return how many more may leave now; 0 or less for none."""
        if self._connection.out_bytes > self._context.receiver_bytes_max:
            return 0
        self._sent.drop_before(self._outbox.base)
        done = self._outbox.done
        unsettled = sum(
            gap_last - gap_first + 1
            for first, last in self._sent
            for gap_first, gap_last in done.gaps(first, last)
        )
        return self._connection.receive_maximum - unsettled

    async def _progress(self) -> None:
        """Wait until the session has heard of its client: an acknowledgement, or its end."""
        heard = asyncio.get_running_loop().create_future()

        def on_progress() -> None:
            if not heard.done():
                heard.set_result(None)

        self._session.on_progress = on_progress
        try:
            await heard
        finally:
            self._session.on_progress = None


async def _read(feed: FeedPort, offset: int, end: int) -> tuple[list[PublishRun], int]:
    """Read from ``offset``, or from where the log begins now. Errors: as ``Feed.read``."""
    while True:
        offset = max(offset, feed.log_start_offset)
        try:
            return await feed.read(offset, end=end)
        except OffsetOutOfRange:
            if offset >= feed.log_start_offset:
                return [], offset  # above its end: the node has lost what it had not flushed
