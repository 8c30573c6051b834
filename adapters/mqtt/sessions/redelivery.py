"""Redelivery: what was on its way when a client went is sent again, in order, with DUP.

The messages are read from where they lie (the log, or the retained messages), and have the same
packet identifiers as before (MQTT 5.0 section 4.4). What was cut off meanwhile counts as
acknowledged, and so does what has expired, but not at QoS 2 (MQTT-4.3.3-7). What the client
acknowledges before its turn has come is not sent: it has it already. The window is the
new connection's: no more than its Receive Maximum are on their way at a time (section 4.9), and
no more octets than it keeps up with.
"""

import asyncio
from typing import TYPE_CHECKING

import structlog

from adapters.mqtt.codec import encode_acks
from adapters.mqtt.outgoing.at_most_once import EXACTLY_ONCE, fitting_parts
from adapters.mqtt.packets.publish_forms import form_of
from adapters.mqtt.sessions.outbox import RETAINED, Unsettled, packet_id_of
from adapters.mqtt.wire import PacketType, PublishRun
from features.expiry import remaining_s
from gateway.errors import GatewayError, OffsetOutOfRange

if TYPE_CHECKING:  # sessions start their redelivery
    from adapters.mqtt.outgoing.feeds import Feed
    from adapters.mqtt.sessions.client_session import ClientSession, SessionConnection

log = structlog.get_logger()


async def redeliver(session: "ClientSession", connection: "SessionConnection") -> None:
    """Send again all that is unsettled; then let the session go on."""
    await _Redelivery(session, connection).run()
    if session.connection is connection:
        session.is_redelivering = False
        session.note_settled()
        session.go_on()


class _Redelivery:
    """One client's. Acknowledgements come in while it runs."""

    def __init__(self, session: "ClientSession", connection: "SessionConnection") -> None:
        self._session = session
        self._services = session.services
        self._outbox = session.outbox
        self._connection = connection
        # Received, and not sent by this connection: they take no part of its window.
        self._released = set(session.outbox.received)

    @property
    def _is_over(self) -> bool:
        return self._session.connection is not self._connection

    async def run(self) -> None:
        for unsettled in list(self._outbox.unsettled()):
            if self._is_over:
                return
            if unsettled.is_received:
                self._release_again(unsettled)
            else:
                await self._send_again(unsettled)
                self._session.note_settled()  # what is not there any more
                await asyncio.sleep(0)  # there may be thousands, and others are to be served

    def _release_again(self, unsettled: Unsettled) -> None:
        first_seq = unsettled.inflight.first_seq
        seqs = range(first_seq + unsettled.start, first_seq + unsettled.stop)
        ids = [packet_id_of(seq) for seq in seqs if seq in self._outbox.received]
        if ids:
            version = self._connection.version
            self._connection.send(encode_acks(PacketType.PUBREL, ids, version))

    async def _send_again(self, unsettled: Unsettled) -> None:
        inflight = unsettled.inflight
        try:
            found = await self._find(unsettled)
        except GatewayError as error:  # it stays on its way, until the client is back again
            log.warning(
                "not delivered again", client=self._session.client_id[:80], error=str(error)
            )
            return
        at = unsettled.start
        for run, start, stop, first in found:
            self._outbox.drop(inflight.first_seq + at, first - at)
            at = first + stop - start
            await self._send_part(unsettled, run, start, stop, first)
            if self._is_over:
                return
        self._outbox.drop(inflight.first_seq + at, unsettled.stop - at)

    async def _find(self, unsettled: Unsettled) -> list[tuple[PublishRun, int, int, int]]:
        """Return (run, start, stop, index in the unsettled run) of what is still there."""
        inflight = unsettled.inflight
        if inflight.partition_id == RETAINED:
            get = self._services.retained.get
            indices = range(unsettled.start, unsettled.stop)
            messages = ((get(inflight.topics[index]), index) for index in indices)
            return [(found, 0, 1, index) for found, index in messages if found is not None]
        feed = self._services.feeds.get(inflight.partition_id)
        if feed is None:
            return []
        offset = inflight.first_offset + unsettled.start
        end = inflight.first_offset + unsettled.stop
        found = []
        while offset < end:
            runs, next_offset = await _read(feed, offset, end)
            for run in runs:
                first = max(offset, run.base_offset)
                last = min(end, run.base_offset + len(run.payloads))
                if first < last:
                    start, stop = first - run.base_offset, last - run.base_offset
                    found.append((run, start, stop, first - inflight.first_offset))
                    offset = last
            if next_offset <= offset < end and not runs:
                break
            offset = max(offset, next_offset)
        return found

    async def _send_part(
        self, unsettled: Unsettled, run: PublishRun, start: int, stop: int, first: int
    ) -> None:
        """Send messages again; those that have expired, or are too large now, are settled."""
        inflight, services, connection = unsettled.inflight, self._services, self._connection
        first_seq = inflight.first_seq + first - start  # that of the run's first message
        expiry_s = None
        if run.expires_at_unix_ms:
            expiry_s = remaining_s(run.expires_at_unix_ms, services.clock.steady_unix_ms())
            if not expiry_s and inflight.qos < EXACTLY_ONCE:
                services.counters.expired += stop - start
                self._outbox.drop(first_seq + start, stop - start)
                return
        form = form_of(
            run,
            version=connection.version,
            qos=inflight.qos,
            retain=inflight.retain,
            identifiers=inflight.identifiers,
            expiry_s=expiry_s,
        )
        count_max = max(services.receiver_bytes_max // form.largest_bytes, 1)
        at = start
        for part_start, part_stop in fitting_parts(
            form, start, stop, connection.packet_bytes_max
        ):
            self._drop_too_large(first_seq, at, part_start)
            at = part_start
            while at < part_stop:
                room = await self._room(first_seq + at)
                if not room:
                    return
                seq = first_seq + at
                begin, end = self._outbox.to_send(
                    seq, first_seq + min(part_stop, at + room, at + count_max)
                )
                self._released |= self._outbox.received.intersection(range(seq, begin))
                at = end - first_seq
                if begin == end:
                    continue
                services.counters.redelivered += end - begin
                octets = form.with_ids(
                    packet_id_of(begin), begin - first_seq, end - first_seq, dup=True
                )
                connection.send(octets)
        self._drop_too_large(first_seq, at, stop)

    def _drop_too_large(self, first_seq: int, start: int, stop: int) -> None:
        if start < stop:
            self._services.counters.too_large += stop - start
            self._outbox.drop(first_seq + start, stop - start)

    async def _room(self, seq: int) -> int:
        """Return how many more may leave from ``seq`` on; 0 when the client has gone."""
        connection = self._connection
        while not self._is_over:
            if connection.out_bytes <= self._services.receiver_bytes_max:
                room = connection.receive_maximum - self._sent_count(seq)
                if room > 0:
                    return room
            await self._progress()
        return 0

    def _sent_count(self, seq: int) -> int:
        """Return how many before ``seq`` were sent again and are not settled."""
        outbox = self._outbox
        if seq - outbox.base < self._connection.receive_maximum:
            return max(seq - outbox.base, 0)  # or less: enough to know that there is room
        done = outbox.done
        count = sum(last - first + 1 for first, last in done.gaps(outbox.base, seq - 1))
        return count - sum(
            outbox.base <= one < seq and one not in done for one in self._released
        )

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


async def _read(feed: "Feed", offset: int, end: int) -> tuple[list[PublishRun], int]:
    """Read from ``offset``, or from where the log begins now. Errors: as ``Feed.read``."""
    while True:
        offset = max(offset, feed.log_start_offset)
        try:
            return await feed.read(offset, end=end)
        except OffsetOutOfRange:
            if offset >= feed.log_start_offset:
                return [], offset  # above its end: the node has lost what it had not flushed
