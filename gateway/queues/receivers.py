"""Receiving: who asks for messages, who waits for them, and what is handed out to whom.

Those who wait are served in order of arrival, in one turn of the loop for all that has come; while
nothing comes they cost nothing. What has to be read from the disk is read beside, for the one who
has taken it; others go on.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

import structlog

from features.queue.model import Order
from gateway.clock import Clock
from gateway.deadlines import Deadlines
from gateway.errors import GatewayError, Overloaded
from gateway.queues.bodies import Body
from gateway.queues.deliveries import Part, Sifter, oldest_kept
from gateway.queues.lanes import Kit, QueueLane
from gateway.queues.model import Delivery, QueueSettings
from gateway.queues.rows import Row, Show

TRIES_MAX: Final = 16  # to find something that has not expired, before others have their turn
SERVED_PER_TURN: Final = 64
RETRY_MS: Final = 1_000  # until messages that could not be read are handed out again

OnDeliveries = Callable[[list[Delivery]], None]

_log = structlog.get_logger()


class Receiver:
    """Somebody who asked for messages and waits. ``cancel`` may be called at any time."""

    __slots__ = (
        "_home",
        "_on_done",
        "bytes_max",
        "holder",
        "is_waiting",
        "lease_ms",
        "messages_max",
        "ticket",
    )

    def __init__(  # noqa: PLR0917 - what was asked for; made in one place
        self,
        home: "Receivers",
        messages_max: int,
        bytes_max: int,
        lease_ms: int,
        holder: int,
        on_done: OnDeliveries,
    ) -> None:
        self._home = home
        self._on_done: OnDeliveries | None = on_done
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.lease_ms = lease_ms
        self.holder = holder
        self.is_waiting = False
        self.ticket = 0  # of a wait that ends by itself

    @property
    def is_done(self) -> bool:
        """It was answered, or has gone."""
        return self._on_done is None

    def cancel(self) -> None:
        """Want nothing any more; what is on its way to it goes back to the queue."""
        self._on_done = None
        self._home.leave(self)

    def time_over(self) -> None:
        """It has waited as long as it wanted; one that is being read for gets what comes."""
        if self.is_waiting:
            self._home.leave(self)
            self.finish([])

    def finish(self, deliveries: list[Delivery]) -> None:
        """Answer."""
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(deliveries)


class Waits:
    """All receivers of a node that wait, and one timer for them."""

    def __init__(self, clock: Clock, *, receivers_max: int) -> None:
        self._clock = clock
        self._receivers_max = receivers_max
        self._tickets = count(1)
        self._receivers: dict[int, Receiver] = {}
        # By ticket: an entry of the timer outlives its receiver, who is not to be kept by it.
        self._deadlines: Deadlines[int] = Deadlines(clock, self._on_due)

    def __len__(self) -> int:
        return len(self._receivers)

    def check_room(self) -> None:
        """Raise ``Overloaded`` when there are too many."""
        if len(self._receivers) >= self._receivers_max:
            raise Overloaded(f"{self._receivers_max} receivers wait for messages")

    def begin(self, receiver: Receiver, wait_ms: int) -> None:
        """Call its ``on_due`` when the time is over."""
        ticket = receiver.ticket = next(self._tickets)
        self._receivers[ticket] = receiver
        self._deadlines.arm(ticket, self._clock.monotonic_ms() + wait_ms)

    def end(self, receiver: Receiver) -> None:
        """It has got something, or has gone."""
        if self._receivers.pop(receiver.ticket, None) is not None:
            self._deadlines.forget(receiver.ticket)

    def has(self, receiver: Receiver) -> bool:
        """Whether it still has time to wait."""
        return receiver.ticket in self._receivers

    def close(self) -> None:
        """Call nobody any more."""
        self._deadlines.close()
        self._receivers.clear()

    def run_due(self) -> None:
        """Answer those whose time is over, as the timer does."""
        self._deadlines.run_due()

    def _on_due(self, ticket: int) -> None:
        receiver = self._receivers.pop(ticket, None)
        if receiver is not None:
            receiver.time_over()


class Receivers:
    """Those who ask one queue for messages."""

    def __init__(self, kit: Kit, waits: Waits, settings: QueueSettings) -> None:
        self._kit = kit
        self._waits = waits
        self._sifter = Sifter(kit)
        self._waiting: OrderedDict[Receiver, None] = OrderedDict()
        self._active: OrderedDict[QueueLane, None] = OrderedDict()  # may have something
        self._is_scheduled = False
        self._is_closed = False
        self._met_dead = False
        self._was_full = False  # then who waits is to be looked at when something is settled
        self.settings = settings
        self.lanes: Sequence[QueueLane] = ()

    def __len__(self) -> int:
        return len(self._waiting)

    # --- asking

    def receive(self, receiver: Receiver, wait_ms: int) -> Receiver | None:
        """Answer a receiver, now, or when there is something, or when its time is over."""
        if not self._waiting and self._serve(receiver):
            if receiver.is_done:
                return None
            self._waits.begin(receiver, wait_ms)  # what is being read may have expired
            return receiver
        if wait_ms <= 0 or self._is_closed:
            receiver.finish([])
            return None
        self._waits.begin(receiver, wait_ms)
        receiver.is_waiting = True
        self._waiting[receiver] = None
        return receiver

    def receive_row(
        self, count: int, *, bytes_max: int, lease_ms: int, show: Show, column: int | None
    ) -> Row | None:
        """Hand out so many messages in a row; None, with nothing changed, when it is not so simple.

        ``receive`` then hands out what there is. What is shown has at most ``bytes_max``, and in
        that ``column`` nothing that is empty.
        """
        if self._waiting:
            return None
        self._come_up_to_now()
        if not self._active:
            return None
        lane = next(iter(self._active))
        row = lane.lane.fresh_row(count)
        if row is None or self._room(count) < count:
            return None
        kit = self._kit
        oldest_unix_ms = oldest_kept(kit.clock, self.settings.retention_ms)
        shown = kit.bodies.find_shown(
            lane.partition, row, show, oldest_unix_ms, bytes_max=bytes_max
        )
        if shown is None or (column is not None and not all(shown[column])):
            return None
        taken_unix_ms = lane.take_row(count, lease_ms)
        kit.counters.delivered += count
        if len(self._active) > 1:
            self._active.move_to_end(lane)
        return Row(lane.number, row, shown, taken_unix_ms)

    def leave(self, receiver: Receiver) -> None:
        """It has gone."""
        self._waits.end(receiver)
        if receiver.is_waiting:
            receiver.is_waiting = False
            self._waiting.pop(receiver, None)

    def wake(self, lane: QueueLane) -> None:
        """A lane may have something that it had not before."""
        self._active[lane] = None
        if self._waiting:
            self.schedule()

    def freed(self) -> None:
        """Something was settled: in a queue that was full there is room again."""
        if self._was_full:
            self._was_full = False
            if self._waiting:
                self.schedule()

    def schedule(self) -> None:
        """Serve those who wait in the loop's next turn."""
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._kit.loop.call_soon(self._serve_waiting)

    def close(self) -> None:
        """Answer all who wait: nothing comes any more."""
        self._is_closed = True
        self._active.clear()
        for receiver in list(self._waiting):
            self.leave(receiver)
            receiver.finish([])

    # --- serving

    def _serve_waiting(self) -> None:
        self._is_scheduled = False
        waiting = self._waiting
        for _ in range(SERVED_PER_TURN):
            if not waiting or self._is_closed:
                return
            receiver, _ = waiting.popitem(last=False)
            receiver.is_waiting = False
            try:
                is_served = self._serve(receiver)
            except BaseException:  # one receiver's bug must not leave the others waiting
                self._waits.end(receiver)
                self.schedule()
                receiver.finish([])
                raise
            if not is_served:
                self._wait_on(receiver)
                return
            if receiver.is_done:
                self._waits.end(receiver)
        self.schedule()

    def _wait_on(self, receiver: Receiver) -> None:
        """Wait, before all others, for whatever time is left."""
        receiver.is_waiting = True
        self._waiting[receiver] = None
        self._waiting.move_to_end(receiver, last=False)

    def _serve(self, receiver: Receiver) -> bool:
        """Hand out what there is, or have it read; says whether there was anything."""
        for _ in range(TRIES_MAX):
            parts = self._take(receiver)
            if not parts and self._met_dead:
                continue
            if not parts:
                return False
            bodies: list[list[Body]] = []
            for lane, taken in parts:
                found = self._kit.bodies.find(lane.partition, [one[0] for one in taken])
                if found is None:
                    self._kit.start(self._read(receiver, parts))
                    return True
                bodies.append(found)
            deliveries = self._sift(receiver, parts, bodies)
            if deliveries:
                receiver.finish(deliveries)
                return True
        self.schedule()  # there may be more behind what has expired
        return False

    def _take(self, receiver: Receiver) -> list[Part]:
        """Take messages of the lanes in turn, of quiet tenants first."""
        self._come_up_to_now()
        wanted = self._room(receiver.messages_max)
        self._met_dead = False
        parts: list[Part] = []
        if len(self._active) > 1 and self.settings.order is Order.FAIR:
            wanted = self._take_some(receiver, wanted, parts, quiet_only=True)
        self._take_some(receiver, wanted, parts, quiet_only=False)
        return parts

    def _come_up_to_now(self) -> None:
        now = self._kit.clock.steady_unix_ms()
        for lane in self.lanes:
            lane.come_up_to_now(now)

    def _take_some(
        self, receiver: Receiver, wanted: int, parts: list[Part], *, quiet_only: bool
    ) -> int:
        active = self._active
        now = self._kit.clock.steady_unix_ms()
        for lane in tuple(active):
            if wanted <= 0:
                break
            taken, effects = lane.lane.take(
                wanted,
                holder=receiver.holder,
                lease_ms=receiver.lease_ms,
                now=now,
                quiet_only=quiet_only,
            )
            if taken:
                parts.append((lane, taken))
            if len(taken) < wanted and not (quiet_only or effects.dead):
                del active[lane]  # until it wakes us
            else:
                active.move_to_end(lane)
            if effects.dead:
                self._met_dead = True  # they took the place of others, who may be behind
            wanted -= len(taken)
            lane.done(effects)
            lane.feed_more()
        return wanted

    def _room(self, messages_max: int) -> int:
        """Return how many may be handed out more; of one lane its policy takes care."""
        lanes = self.lanes
        if len(lanes) == 1:
            return messages_max
        in_flight_max = self.settings.in_flight_max
        if sum(lane.lane.open_count for lane in lanes) + messages_max <= in_flight_max:
            return messages_max
        self._was_full = True
        in_flight = sum(lane.lane.counts(lane.partition.high_watermark)[1] for lane in lanes)
        return min(messages_max, in_flight_max - in_flight)

    async def _read(self, receiver: Receiver, parts: list[Part]) -> None:
        """Wait for the disk, then hand out what was taken."""
        kit = self._kit
        deliveries: list[Delivery] = []
        try:
            async with kit.cold_reads:
                bodies = [
                    await kit.bodies.read(lane.partition, [one[0] for one in taken])
                    for lane, taken in parts
                ]
        except GatewayError as error:
            _log.warning("messages taken cannot be read", error=str(error))
            self._sifter.give_back(parts, delay_ms=RETRY_MS)
            receiver.finish([])
        except asyncio.CancelledError:  # the node stops: nobody has seen them
            self._sifter.give_back(parts)
            raise
        else:
            if receiver.is_done or self._is_closed:
                self._sifter.give_back(parts)
            else:
                deliveries = self._sift(receiver, parts, bodies)
        if deliveries or receiver.is_done or self._is_closed or not self._waits.has(receiver):
            self._waits.end(receiver)
            receiver.finish(deliveries)
        else:
            self._wait_on(receiver)
            self.schedule()

    def _sift(
        self, receiver: Receiver, parts: list[Part], bodies: list[list[Body]]
    ) -> list[Delivery]:
        deliveries = self._sifter.sift(parts, bodies, receiver.bytes_max, self.settings)
        self._kit.counters.delivered += len(deliveries)
        return deliveries
