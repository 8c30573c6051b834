"""Messages are done: nothing is left of them, but for a while what ``put_back`` needs."""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from features.queue.model import AT_ONCE, Result
from features.queue.open_messages import OpenMessages
from features.queue.states import Flight, Moving, Requeued
from features.queue.unread_ranges import UnreadRanges

_SETTLED_KEPT: Final = 1_024  # messages, and the last call's: ``put_back`` knows all of them
_DONE: Final = Result.DONE

Ids = Sequence[tuple[int, int]]  # offset, attempt


class _Settled(NamedTuple):
    """Flights settled by one call; None for a message that was not in flight."""

    number: int
    offsets: Sequence[int]
    states: Sequence[Flight | Requeued | None]


class Acking:
    """Acknowledgements of one lane. ``messages`` may be replaced between calls.

    ``number`` counts the calls that settled something.
    """

    __slots__ = ("_settled", "_settled_count", "_unread", "messages", "number")

    def __init__(self, messages: OpenMessages, unread: UnreadRanges) -> None:
        self.messages = messages
        self._unread = unread
        self._settled: deque[_Settled] = deque()
        self._settled_count = 0
        self.number = 0

    def ack(self, ids: Ids, now_unix_ms: int) -> tuple[list[Result], list[int]]:
        """Return what became of each, and the offsets of those that are done now."""
        messages = self.messages
        items = messages.items
        results: list[Result] = []
        offsets: list[int] = []
        states: list[Flight | Requeued | None] = []
        landing: Flight | None = None  # in a row, those of one flight land in one call
        landing_count = 0
        for offset, attempt in ids:
            item = items.get(offset)
            if type(item) is Flight and item.attempt == attempt:
                del items[offset]
                if item is not landing:
                    if landing is not None:
                        messages.land(landing, landing_count, now_unix_ms)
                    landing = item
                    landing_count = 0
                landing_count += 1
                result = _DONE
            else:
                result = self._ack_rare(offset, attempt, now_unix_ms)
            results.append(result)
            if result is _DONE:
                offsets.append(offset)
                states.append(cast("Flight | Requeued | None", item))  # what is dying stays
        if landing is not None:
            messages.land(landing, landing_count, now_unix_ms)
        if offsets:
            self.number += 1
            self._note(offsets, states)
        return results, offsets

    def ack_part(
        self, flight: Flight, offsets: Sequence[int], number: int, now_unix_ms: int
    ) -> None:
        """Settle messages of a flight that are all in flight; ``number``: of the call."""
        items = self.messages.items
        for offset in offsets:
            del items[offset]
        self.messages.land(flight, len(offsets), now_unix_ms)
        self.number = number
        self._note(offsets, (flight,) * len(offsets))

    def _note(self, offsets: Sequence[int], states: Sequence[Flight | Requeued | None]) -> None:
        """Messages are done by the latest call; what they were is known for a while."""
        self._settled.append(_Settled(self.number, offsets, states))
        self._settled_count += len(offsets)
        while self._settled_count > _SETTLED_KEPT and len(self._settled) > 1:
            self._settled_count -= len(self._settled.popleft().offsets)

    def _ack_rare(self, offset: int, attempt: int, now_unix_ms: int) -> Result:
        """Settle what is not in flight by that id.

        An attempt above the one we know of is of a take that was lost in a crash, after it was
        answered: who shows its id has the message.
        """
        messages = self.messages
        item = messages.items.get(offset)
        if item is None:
            return Result.DONE if self._cut(offset) else Result.GONE
        if isinstance(item, Moving):
            return Result.STALE
        if isinstance(item, Flight):
            is_latest = attempt > item.attempt
        elif messages.key_queues.keeps_order(item.key):
            is_latest = attempt > item.attempts
        else:
            is_latest = attempt >= item.attempts
        if not is_latest:
            return Result.STALE
        messages.remove(offset, now_unix_ms)
        return Result.DONE

    def _cut(self, offset: int) -> bool:
        """Take out a message that was never handed out; False when there is none."""
        if offset < self._unread.next_offset:
            return False
        was_there, behind = self._unread.cut(offset)
        if behind is not None:
            self.messages.add_range(behind)
        return was_there

    def put_back(self, ids: Ids, now_unix_ms: int) -> None:
        """Undo ``ack``. Of calls too long ago the key is lost, and the lease is over."""
        messages = self.messages
        for offset, attempt in ids:
            if offset in messages.items:
                continue
            state = self._find(offset)
            messages.note_opened((offset,))
            if isinstance(state, Flight):
                first_unix_ms = state.first_taken_unix_ms
                messages.launch(
                    Flight((offset,), state.key, state.attempt, first_unix_ms, state.spared),
                    holder=state.holder,
                    due_unix_ms=state.lease_end_unix_ms,
                    now_unix_ms=state.taken_unix_ms,
                )
                continue
            back = Requeued(offset, None, attempt, now_unix_ms) if state is None else state
            messages.requeue(back, AT_ONCE)

    def _find(self, offset: int) -> Flight | Requeued | None:
        for settled in reversed(self._settled):
            if offset in settled.offsets:
                return settled.states[settled.offsets.index(offset)]
        return None

    def forget(self, number: int) -> None:
        """Nothing of the calls up to that one will be put back."""
        settled = self._settled
        while settled and settled[0].number <= number:
            self._settled_count -= len(settled.popleft().offsets)

    def clear(self) -> None:
        """Forget what was settled."""
        self._settled.clear()
        self._settled_count = 0
