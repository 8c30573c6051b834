"""Receives of one queue: requests, waiting, and delivery.

Waiting receives are served in order of arrival, in one turn of the loop for all new messages; they
cost nothing while no message arrives. Messages that must be read from the disk are read in a task
of the receive that took them; other receives go on.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final

import structlog

from features.queue.model import DEAD_MAX, Order, TakenRange
from gateway.errors import GatewayError
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.delivery_filter import DeliveryFilter, FoundPart, TakenPart
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.message_cache import found_bytes
from gateway.queues.model import QueueSettings
from gateway.queues.pending_receives import PendingReceive, PendingReceives
from gateway.queues.queue_usage import QueueUsage
from gateway.queues.selecting import Selection
from gateway.queues.taker import Dealer, Found, Taker

FOUND_BYTES_MAX: Final = 16 * 1024 * 1024
"""Batches held for one answer, and one more; messages behind them wait for the next."""
TRIES_MAX: Final = 16  # takes in one step of the loop to find a message that has not expired
SERVED_PER_TURN: Final = 64
RETRY_MS: Final = 1_000  # until messages that could not be read are handed out again
LOOK_MS: Final = 1_000  # for one who does not wait, behind what is dead or has expired

_log = structlog.get_logger()


class Receivers:
    """Receives of one queue. ``dealer`` is there while the queue has consumers."""

    def __init__(
        self, context: QueueContext, pending_receives: PendingReceives, settings: QueueSettings
    ) -> None:
        self._context = context
        self._pending_receives = pending_receives
        self._sifter = DeliveryFilter(context)
        self._waiting: OrderedDict[PendingReceive, None] = OrderedDict()
        self._active: OrderedDict[QueueLane, None] = OrderedDict()  # may have something
        self.is_scheduled = False
        self.is_closed = False
        self._is_looking = False  # somebody found no more than dead ones yet, and comes again
        self._met_dead_count = 0
        self._was_full = False  # then who waits is to be looked at when something is settled
        self.dealer: Dealer | None = None
        self.usage = QueueUsage(context.clock)
        self.settings = settings
        self.lanes: Sequence[QueueLane] = ()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def demand(self) -> int:
        """Messages that receives would take at once; the first of many that wait count."""
        return sum(one.messages_max for one in islice(self._waiting, SERVED_PER_TURN))

    # --- asking

    def receive(self, receiver: PendingReceive, wait_ms: int) -> PendingReceive | None:
        """Answer a receive: at once, when messages arrive, or at its timeout.

        One without a wait is answered at once, unless many messages in front are dead or expired.
        """
        if self.settings.expires_ms:
            self.usage.touch(wait_ms)
        receiver.is_polling = wait_ms <= 0
        found = Found.NOTHING if self._waiting else self.serve(receiver)
        if receiver.is_done:
            return None
        if found is not Found.SOMETHING and (
            self.is_closed or (receiver.is_polling and not self._is_looking)
        ):
            receiver.finish([])
            return None
        self._pending_receives.begin(receiver, LOOK_MS if receiver.is_polling else wait_ms)
        if found is not Found.SOMETHING:  # what is being read may have expired, too
            receiver.is_waiting = True
            self._waiting[receiver] = None
        return receiver

    def leave(self, receiver: PendingReceive) -> None:
        """Forget a cancelled receive."""
        self._pending_receives.end(receiver)
        if receiver.is_waiting:
            receiver.is_waiting = False
            self._waiting.pop(receiver, None)

    def wake(self, lane: QueueLane) -> None:
        """Serve waiting receives after a lane may have new messages."""
        self._active[lane] = None
        if self.dealer is not None:
            self.dealer.woke()
            self.schedule()
        elif self._waiting:
            self.schedule()

    def freed(self) -> None:
        """Serve waiting receives after a settle, if the queue was full."""
        if self.dealer is not None:
            self.dealer.freed()
        if self._was_full:
            self._was_full = False
            if self.dealer is not None:
                self.dealer.woke()
            if self._waiting or self.dealer is not None:
                self.schedule()

    def schedule(self) -> None:
        """Serve waiting receives in the loop's next turn."""
        if not self.is_scheduled and not self.is_closed:
            self.is_scheduled = True
            self._context.loop.call_soon(self._serve_turn)

    def close(self) -> None:
        """Answer all waiting receives and stop."""
        self.is_closed = True
        self._active.clear()
        for receiver in list(self._waiting):
            self.leave(receiver)
            receiver.finish([])

    def reopen(self) -> None:
        """Serve again, after all partitions of the queue have come back."""
        self.is_closed = False
        self._active = OrderedDict.fromkeys(self.lanes)

    # --- serving

    def _serve_turn(self) -> None:
        self.is_scheduled = False
        if self.is_closed:
            return
        if self.dealer is not None:
            self.dealer.deal()
        elif self.serve_waiting(SERVED_PER_TURN) is Found.SOMETHING and self._waiting:
            self.schedule()

    def serve_waiting(self, count: int) -> Found:
        """Serve up to ``count`` of the receives that wait; return what the last one found."""
        waiting = self._waiting
        found = Found.SOMETHING
        while waiting and count and found is Found.SOMETHING and not self.is_closed:
            count -= 1
            was_looking = self._is_looking
            receiver, _ = waiting.popitem(last=False)
            receiver.is_waiting = False
            try:
                found = self.serve(receiver)
            except BaseException:  # one receiver's bug must not leave the others waiting
                self._pending_receives.end(receiver)
                self.schedule()
                receiver.fail()
                raise
            if found is not Found.SOMETHING:
                self._wait_on(receiver)
                if found is Found.NOTHING and was_looking:
                    self._end_polls()
            elif receiver.is_done:
                self._pending_receives.end(receiver)
        return found

    def _end_polls(self) -> None:
        """Answer the receives that do not wait, as there is no message."""
        for receiver in [one for one in self._waiting if one.is_polling]:
            self.leave(receiver)
            receiver.finish([])

    def _wait_on(self, receiver: PendingReceive) -> None:
        """Return a receive to the front of the waiting ones, for the rest of its wait."""
        receiver.is_waiting = True
        self._waiting[receiver] = None
        self._waiting.move_to_end(receiver, last=False)

    def serve(self, receiver: Taker) -> Found:
        """Hand out messages, or start to read them."""
        self._met_dead_count = 0
        if receiver.selection is not None:
            return self._serve_selection(receiver, receiver.selection)
        for _ in range(TRIES_MAX):
            met_dead_count = self._met_dead_count
            parts = self._take(receiver)
            if not parts:
                if self._met_dead_count == met_dead_count:
                    self._is_looking = False
                    return Found.NOTHING
                if self._met_dead_count >= DEAD_MAX:
                    break
                continue
            if self._deliver(receiver, parts):
                return Found.SOMETHING
        self._look_again()
        return Found.PERHAPS

    def _serve_selection(self, receiver: Taker, selection: Selection) -> Found:
        """Hand out what a consumer selects, once in a turn."""
        self._come_up_to_now()
        wanted = self._room(receiver.messages_max)
        now = self._context.clock.steady_unix_ms()
        parts: list[TakenPart] = []
        is_over = True
        for lane in self.lanes:
            if wanted <= 0:
                break
            look = selection.look(self._context, lane, wanted)
            is_over = is_over and (look.is_over or bool(look.unread))
            if look.unread:
                selection.reading.add(lane.number)
                self._context.start(self._read_ahead(lane, look.unread, selection))
            if not look.offsets:
                continue
            taken, effects = lane.lane.take_selected(
                look.offsets, holder=receiver.holder, lease_ms=receiver.lease_ms, now=now
            )
            if taken:
                parts.append((lane, taken))
                wanted -= sum(len(one.offsets) for one in taken)
            lane.done(effects)
            lane.feed_more()
        if parts and self._deliver(receiver, parts):
            return Found.SOMETHING
        return Found.NOTHING if is_over and not parts else Found.PERHAPS

    async def _read_ahead(
        self, lane: QueueLane, unread: list[TakenRange], selection: Selection
    ) -> None:
        """Read messages that a consumer is to look at; then it looks again."""
        try:
            async with self._context.cold_reads:
                await self._context.message_cache.read_ranges(
                    lane.partition, unread, bytes_max=FOUND_BYTES_MAX
                )
        except GatewayError as error:
            _log.warning("messages cannot be read", error=str(error))
            await asyncio.sleep(RETRY_MS / 1_000)
        selection.reading.discard(lane.number)
        if not self.is_closed:
            self.wake(lane)

    def _deliver(self, receiver: Taker, parts: list[TakenPart]) -> bool:
        """Deliver taken messages, or start to read them; False when none may be delivered."""
        found_parts = self._find(parts)
        if found_parts is None:
            self._context.start(self._read(receiver, parts))
            return True
        delivered = self._filter(receiver, found_parts)
        if delivered:
            receiver.finish(delivered)
        return bool(delivered)

    def _find(self, parts: list[TakenPart]) -> list[FoundPart] | None:
        """Return taken messages with their batches; None when the disk must be waited for."""
        left_bytes = FOUND_BYTES_MAX
        found_parts: list[FoundPart] = []
        for lane, taken in parts:
            found = self._context.message_cache.find_ranges(
                lane.partition, taken, bytes_max=left_bytes
            )
            if found is None:
                return None
            found_parts.append((lane, found))
            if len(parts) > 1:
                left_bytes -= found_bytes(found)
        return found_parts

    async def _read_parts(self, parts: list[TakenPart]) -> list[FoundPart]:
        """Return taken messages as ``_find``, waiting for the disk."""
        left_bytes = FOUND_BYTES_MAX
        found_parts: list[FoundPart] = []
        for lane, taken in parts:
            found = await self._context.message_cache.read_ranges(
                lane.partition, taken, bytes_max=left_bytes
            )
            found_parts.append((lane, found))
            left_bytes -= found_bytes(found)
        return found_parts

    def _look_again(self) -> None:
        """Look behind dead or expired messages."""
        self._is_looking = True
        self.schedule()

    def _take(self, receiver: Taker) -> list[TakenPart]:
        """Take messages of the lanes in turn, of quiet tenants first."""
        self._come_up_to_now()
        wanted = self._room(receiver.messages_max)
        parts: list[TakenPart] = []
        if self._active:
            if len(self._active) > 1 and self.settings.order is Order.FAIR:
                wanted = self._take_some(receiver, wanted, parts, quiet_only=True)
            self._take_some(receiver, wanted, parts, quiet_only=False)
        return parts

    def _come_up_to_now(self) -> None:
        now = self._context.clock.steady_unix_ms()
        for lane in self.lanes:
            lane.come_up_to_now(now)

    def _take_some(
        self, receiver: Taker, wanted: int, parts: list[TakenPart], *, quiet_only: bool
    ) -> int:
        active = self._active
        now = self._context.clock.steady_unix_ms()
        for lane in tuple(active):
            if wanted <= 0:
                break
            taken, effects = lane.lane.take_ranges(
                wanted,
                holder=receiver.holder,
                lease_ms=receiver.lease_ms,
                now=now,
                quiet_only=quiet_only,
            )
            count = 0
            if taken:
                parts.append((lane, taken))
                for one in taken:
                    count += len(one.offsets)
            if count < wanted and not (quiet_only or effects.dead):
                del active[lane]  # until it wakes us
            else:
                active.move_to_end(lane)
            self._met_dead_count += len(effects.dead)  # there may be others behind them
            wanted -= count
            lane.done(effects)
            lane.feed_more()
        return wanted

    def _room(self, messages_max: int) -> int:
        """Return how many more messages may be in flight; a single lane bounds it itself."""
        lanes = self.lanes
        if len(lanes) == 1:
            return messages_max
        room = self.settings.in_flight_max - sum(lane.lane.in_flight_count for lane in lanes)
        if messages_max <= room:
            return messages_max
        self._was_full = True
        return room

    async def _read(self, receiver: Taker, parts: list[TakenPart]) -> None:
        """Read taken messages from the disk, then deliver them."""
        try:
            await self._read_for(receiver, parts)
        except Exception:  # noqa: BLE001 - a bug that one receiver meets is not all others'
            _log.exception("taken messages cannot be delivered")
            self._pending_receives.end(receiver)
            receiver.fail()
            self._sifter.release_taken(parts, delay_ms=RETRY_MS)

    async def _read_for(self, receiver: Taker, parts: list[TakenPart]) -> None:
        context = self._context
        delivered: list[DeliveredRange] = []
        try:
            async with context.cold_reads:
                found_parts = await self._read_parts(parts)
        except GatewayError as error:
            _log.warning("messages taken cannot be read", error=str(error))
            self._sifter.release_taken(parts, delay_ms=RETRY_MS)
            receiver.finish([])
        except asyncio.CancelledError:  # the node stops: nobody has seen them
            self._sifter.release_taken(parts)
            raise
        else:
            if receiver.is_done or self.is_closed:
                self._sifter.release_taken(parts)
            else:
                delivered = self._filter(receiver, found_parts)
        if (
            delivered
            or receiver.is_done
            or self.is_closed
            or not self._pending_receives.has(receiver)
        ):
            self._pending_receives.end(receiver)
            receiver.finish(delivered)
        elif isinstance(receiver, PendingReceive):
            self._wait_on(receiver)
            self._look_again()

    def _filter(self, receiver: Taker, found_parts: list[FoundPart]) -> list[DeliveredRange]:
        delivered = self._sifter.filter_found(
            found_parts, receiver.bytes_max, self.settings, has_waited=not receiver.is_polling
        )
        for one in delivered:
            found_parts[0][0].owner.counters.delivered += len(one.offsets)
        if (tracer := self._context.broker.append_queue.tracer) is not None:
            for one in delivered:
                tracer.received(one.partition, one.offsets)
        return delivered
