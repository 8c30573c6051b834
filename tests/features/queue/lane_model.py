"""Plain model of a lane, which looks at every message for every question."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from features.fairness import Fairness
from features.queue.model import (
    AT_ONCE,
    BY_TIME,
    DEAD_MAX,
    Counts,
    Order,
    Result,
    RetryOn,
    Taken,
)
from features.queue.retrying import DeliveryEnd

AHEAD, FLIGHT, BACK, DYING, DONE = "ahead", "flight", "back", "dying", "done"
KEPT = ("state", "attempts", "spared", "first_taken_unix_ms", "due_unix_ms", "holder")


@dataclass
class Message:
    """``due_unix_ms``: of a flight its lease's end, else when it is visible; AT_ONCE for now."""

    offset: int
    key: bytes | None
    visible_unix_ms: int
    state: str = AHEAD
    attempts: int = 0
    spared: int = 0
    first_taken_unix_ms: int = 0
    due_unix_ms: int = AT_ONCE
    holder: int = BY_TIME
    is_delayed: bool = False  # was fed before it was visible, and no tick has said so since
    reason: str = ""
    kept: list[tuple[int, "Message"]] = field(default_factory=list)  # what the journal says


class LaneModel:
    """The messages of a partition by offset; some offsets have none."""

    def __init__(self, order: Order, in_flight_max: int) -> None:
        self.order = order
        self.in_flight_max = in_flight_max
        self.attempts_max = 0
        self.delivery_limit = -1
        self.retry_delay_ms = 0
        self.retry_delay_ms_max = 0
        self.retry_delay_on = RetryOn.ALL
        self.messages: dict[int, Message] = {}
        self.end_offset = 0
        self.fed_end = 0
        self.entry_count = 0

    def of_state(self, *states: str) -> list[Message]:
        return [message for message in self.messages.values() if message.state in states]

    @property
    def open(self) -> list[Message]:
        return self.of_state(FLIGHT, BACK, DYING)

    @property
    def counted(self) -> list[Message]:
        """Open messages that keep others from being opened."""
        return self.of_state(FLIGHT, BACK)

    def append(self, key: bytes | None, visible_unix_ms: int) -> None:
        kept_key = None if self.order is Order.NONE else key
        self.messages[self.end_offset] = Message(self.end_offset, kept_key, visible_unix_ms)
        self.end_offset += 1

    def append_hole(self) -> None:
        self.end_offset += 1

    def feed(self, end_offset: int, now_unix_ms: int) -> None:
        for message in self.of_state(AHEAD):
            if self.fed_end <= message.offset < end_offset:
                message.is_delayed = message.visible_unix_ms > now_unix_ms
        self.fed_end = max(self.fed_end, end_offset)

    # Taking.

    def keeps_order(self, key: bytes | None) -> bool:
        return self.order is Order.KEY and key is not None

    def candidates(self, key: bytes | None) -> list[Message]:
        """Return what may be handed out of a key, in order."""
        mine = [message for message in self.messages.values() if message.key == key]
        backs = [message for message in mine if message.state == BACK]
        fresh = [
            message
            for message in mine
            if message.state == AHEAD and message.offset < self.fed_end
        ]
        if not self.keeps_order(key):
            ready_backs = [message for message in backs if message.due_unix_ms == AT_ONCE]
            return ready_backs + [message for message in fresh if not message.is_delayed]
        flights = [message.offset for message in mine if message.state == FLIGHT]
        found: list[Message] = []
        for message in backs if flights else backs + fresh:
            if message.is_delayed or message.due_unix_ms != AT_ONCE:
                break
            if flights and message.offset > min(flights):
                break
            found.append(message)
        return found

    def lines(self) -> list[list[Message]]:
        """Return the candidates of each key, the key first that goes first."""
        keys = {message.key for message in self.messages.values()}
        lines = [line for key in keys if (line := self.candidates(key))]
        return sorted(
            lines,
            key=lambda line: (
                -self.priority(line[0].key),
                line[0].state == AHEAD,
                line[0].offset,
            ),
        )

    def priority(self, key: bytes | None) -> int:
        return key[0] if key and self.order is Order.PRIORITY else 0

    def take(
        self,
        count: int,
        *,
        holder: int,
        lease_ms: int,
        now: int,
        quiet_only: bool,
        fairness: Fairness,
        dead_max: int = DEAD_MAX,
    ) -> tuple[list[Taken], list[int]]:
        """Return what is handed out, and which are dead."""
        fairness = deepcopy(fairness)
        flights = self.in_flight_max - len(self.of_state(FLIGHT))
        lines = self.lines()
        taken: list[Taken] = []
        dead: list[int] = []

        def is_full() -> bool:
            is_over = len(taken) >= count or len(dead) >= dead_max
            return is_over or len(taken) >= flights

        noisy: list[list[Message]] = []
        for line in self._in_turn(lines, noisy, fairness, now, quiet_only=quiet_only):
            count_before = len(taken)
            for message in line:
                if is_full():
                    break
                if message.state == BACK and 0 < self.attempts_max <= message.attempts:
                    message.state = DYING
                    message.reason = "attempts"
                    dead.append(message.offset)
                    continue
                if message.state == BACK and self.is_beyond_limit(message):
                    message.state = DYING
                    message.reason = "delivery_limit"
                    dead.append(message.offset)
                    continue
                if message.state == AHEAD:
                    if len(self.counted) >= 2 * self.in_flight_max:
                        break
                    message.first_taken_unix_ms = now
                message.state = FLIGHT
                message.attempts += 1
                message.due_unix_ms = now + lease_ms
                message.holder = holder
                taken.append(
                    Taken(message.offset, message.attempts, message.first_taken_unix_ms)
                )
            if len(taken) > count_before:
                fairness.took(line[0].key, len(taken) - count_before)
        return taken, dead

    def _in_turn(
        self,
        lines: list[list[Message]],
        noisy: list[list[Message]],
        fairness: Fairness,
        now: int,
        *,
        quiet_only: bool,
    ) -> Iterator[list[Message]]:
        for line in lines:
            if self.order is Order.FAIR and fairness.is_noisy(line[0].key, now):
                noisy.append(line)
            else:
                yield line
        if not quiet_only:
            yield from noisy

    def take_selected(
        self, offsets: set[int], *, holder: int, lease_ms: int, now: int
    ) -> tuple[list[Taken], list[int]]:
        """Return what is handed out of some messages, and which are dead."""
        taken: list[Taken] = []
        dead: list[int] = []
        if self.order is Order.KEY:
            return taken, dead
        for message in (self.messages[at] for at in sorted(offsets) if at in self.messages):
            if len(self.of_state(FLIGHT)) >= self.in_flight_max:
                break
            if message.state == AHEAD:
                is_at_hand = message.offset < self.fed_end and not message.is_delayed
                if not is_at_hand or len(self.counted) >= 2 * self.in_flight_max:
                    continue
                message.first_taken_unix_ms = now
            elif message.state != BACK or message.due_unix_ms != AT_ONCE:
                continue
            elif 0 < self.attempts_max <= message.attempts or self.is_beyond_limit(message):
                message.state = DYING
                dead.append(message.offset)
                continue
            message.state = FLIGHT
            message.attempts += 1
            message.due_unix_ms = now + lease_ms
            message.holder = holder
            taken.append(Taken(message.offset, message.attempts, message.first_taken_unix_ms))
        return taken, dead

    # Settling.

    def reject_ready(self, offsets: set[int], now: int) -> tuple[list[int], list[Message]]:
        """Return what dies, and what of it was never handed out, as the journal has it."""
        dead: list[int] = []
        fresh: list[Message] = []
        for message in (self.messages[at] for at in sorted(offsets) if at in self.messages):
            if len(self.of_state(FLIGHT, DYING)) >= self.in_flight_max:
                break
            if message.due_unix_ms != AT_ONCE or message.state not in {AHEAD, BACK}:
                continue
            if message.state == AHEAD:
                is_at_hand = message.offset < self.fed_end and not message.is_delayed
                if not is_at_hand or len(self.counted) >= 2 * self.in_flight_max:
                    continue
                message.first_taken_unix_ms = now
                fresh.append(message)
            message.state = DYING
            dead.append(message.offset)
        return dead, fresh

    def ack(self, ids: Sequence[tuple[int, int]]) -> tuple[list[Result], list[Message]]:
        results: list[Result] = []
        done: list[Message] = []
        for offset, attempt in ids:
            message = self.messages[offset]
            result = self._ack_result(message, attempt)
            if result is Result.DONE:
                done.append(message)
                message.state = DONE
            results.append(result)
        return results, done

    def _ack_result(self, message: Message, attempt: int) -> Result:
        if message.state == DONE:
            return Result.GONE
        if message.state == AHEAD:
            return Result.DONE  # by a take that was lost
        if message.state == DYING or attempt < message.attempts:
            return Result.STALE
        is_late = message.state == BACK and attempt == message.attempts
        if is_late and self.keeps_order(message.key):
            return Result.STALE
        return Result.DONE

    @property
    def has_room(self) -> bool:
        """One more may be in flight."""
        return len(self.of_state(FLIGHT)) < self.in_flight_max

    def find(
        self, offset: int, attempt: int, *, latest_only: bool = True
    ) -> tuple[Message | None, Result]:
        message = self.messages[offset]
        if not latest_only and message.state in {FLIGHT, BACK}:
            return message, Result.DONE
        if message.state == FLIGHT and message.attempts == attempt:
            return message, Result.DONE
        return None, Result.GONE if message.state in {AHEAD, DONE} else Result.STALE

    def held(self, offsets: range, attempt: int, holder: int) -> list[Message]:
        """Return those of a range that a holder has in flight by that attempt."""
        found = (self.messages.get(offset) for offset in offsets)
        return [
            one
            for one in found
            if one is not None
            and (one.state, one.attempts, one.holder) == (FLIGHT, attempt, holder)
        ]

    def is_beyond_limit(self, message: Message) -> bool:
        return 0 <= self.delivery_limit < message.attempts - message.spared

    def requeue(
        self,
        message: Message,
        now: int,
        ending: DeliveryEnd = DeliveryEnd.FAILED,
        *,
        due_unix_ms: int = AT_ONCE,
    ) -> bool:
        """Let a message come back, or die as it has failed too often: False.

        The delay counts from ``now`` where no time is asked for.
        """
        message.attempts -= ending is DeliveryEnd.UNSEEN
        message.spared += ending is DeliveryEnd.SPARED
        if self.is_beyond_limit(message):
            message.state, message.due_unix_ms = DYING, AT_ONCE
            message.reason = "delivery_limit"
            return False
        message.state = BACK
        delay_ms = self.delay_ms(message, ending)
        message.due_unix_ms = due_unix_ms or (now + delay_ms if delay_ms else AT_ONCE)
        return True

    def delay_ms(self, message: Message, ending: DeliveryEnd) -> int:
        if ending is DeliveryEnd.UNSEEN:
            return 0
        if ending is DeliveryEnd.FAILED:
            applies = self.retry_delay_on in {RetryOn.FAILED, RetryOn.ALL}
            count = message.attempts - message.spared
        else:
            applies = self.retry_delay_on in {RetryOn.RETURNED, RetryOn.ALL}
            count = message.attempts
        return min(self.retry_delay_ms * count, self.retry_delay_ms_max) * applies

    def tick(self, now: int) -> list[int]:
        """Do all that is due; return which are to be moved now."""
        dead: list[int] = []
        for message in self.messages.values():
            if message.state == AHEAD:
                is_fed = message.offset < self.fed_end
                message.is_delayed &= not is_fed or message.visible_unix_ms > now
            elif message.due_unix_ms > now or message.state == DONE:
                continue
            elif message.state == FLIGHT:
                if not self.requeue(message, message.due_unix_ms):
                    dead.append(message.offset)
                elif message.due_unix_ms <= now:
                    message.due_unix_ms = AT_ONCE
            elif message.due_unix_ms != AT_ONCE:
                message.due_unix_ms = AT_ONCE
                if message.state == DYING:
                    dead.append(message.offset)
        return dead

    # Journal.

    def keep(self, messages: Sequence[Message]) -> None:
        """The journal has one more entry, which says what these messages are now."""
        for message in messages:
            message.kept.append((self.entry_count, replace(message, kept=[])))
        self.entry_count += 1

    def crash(self, entry_count: int) -> None:
        """Go back to what that many entries say; nothing else is left."""
        self.entry_count = entry_count
        for message in self.messages.values():
            message.kept = [entry for entry in message.kept if entry[0] < entry_count]
            fresh = Message(message.offset, message.key, message.visible_unix_ms)
            said = message.kept[-1][1] if message.kept else fresh
            for name in KEPT:
                setattr(message, name, getattr(said, name))
            message.is_delayed = False

    def counts(self) -> Counts:
        delayed = [
            message
            for message in self.messages.values()
            if (message.state == BACK and message.due_unix_ms != AT_ONCE)
            or (message.state == AHEAD and message.is_delayed and message.offset < self.fed_end)
        ]
        in_flight = self.of_state(FLIGHT, DYING)
        ready = self.of_state(BACK, AHEAD)
        return Counts(len(ready) - len(delayed), len(in_flight), len(delayed))
