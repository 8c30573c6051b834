"""One call by which messages leave their flights unsettled: requeued, or moved away.

A message that has used its attempts is requeued too: it is dead only when it would be delivered
again, so until then its last receiver may still acknowledge it (as in Amazon SQS).
"""

from collections.abc import Iterable, Mapping

from features.queue import journal
from features.queue.acking import Ids
from features.queue.model import AT_ONCE, Dead, Effects, Result
from features.queue.open_messages import OpenMessages
from features.queue.states import Flight, Moving, Requeued

ByFlight = dict[Flight, list[int]]


class Requeueing:
    """Requeueing by one call; ``effects`` are those of the call so far."""

    __slots__ = ("_open", "effects", "now_unix_ms")

    def __init__(self, messages: OpenMessages, now_unix_ms: int) -> None:
        self._open = messages
        self.now_unix_ms = now_unix_ms
        self.effects = Effects()

    def add_journal(self, change: bytes) -> None:
        """Add a change to the call's journal entry."""
        written = self.effects.journal
        self.effects.journal = change if written is None else written + change

    def release(self, ids: Ids, due_unix_ms: int, *, counts_attempt: bool) -> list[Result]:
        """Requeue messages in flight; return what became of each id."""
        results: list[Result] = []
        by_flight: ByFlight = {}
        for offset, attempt in ids:
            flight, result = self._open.in_flight(offset, attempt)
            if flight is not None:
                if offset in by_flight.setdefault(flight, []):
                    result = Result.STALE
                else:
                    by_flight[flight].append(offset)
            results.append(result)
        self.requeue(by_flight, due_unix_ms, counts_attempt=counts_attempt)
        return results

    def reject(self, ids: Ids, reason: str) -> list[Result]:
        """Mark messages in flight as dead; return what became of each id."""
        results: list[Result] = []
        for offset, attempt in ids:
            flight, result = self._open.in_flight(offset, attempt)
            results.append(result)
            if flight is not None:
                self.kill(flight, [offset], attempt, reason)
        return results

    def end_holder(self, holder: int, *, counts_attempt: bool) -> None:
        """Requeue all that a holder has; written only where the attempt does not count."""
        messages = self._open
        flights = {flight: messages.members(flight) for flight in messages.flights_of(holder)}
        if not counts_attempt:
            self.requeue(flights, AT_ONCE, counts_attempt=False)
            return
        for flight, offsets in flights.items():
            self.requeue_unwritten(flight, offsets)

    def requeue(
        self, by_flight: ByFlight, due_unix_ms: int, *, counts_attempt: bool = True
    ) -> None:
        """Requeue messages at a receiver's request, with a journal entry."""
        returned: list[int] = []
        for flight, offsets in by_flight.items():
            self.requeue_unwritten(flight, offsets, due_unix_ms, counts_attempt=counts_attempt)
            returned += offsets
        if returned:
            change = journal.encode_return(returned, due_unix_ms, counts_attempt=counts_attempt)
            self.add_journal(change)

    def requeue_unwritten(
        self,
        flight: Flight,
        offsets: list[int],
        due_unix_ms: int = AT_ONCE,
        *,
        counts_attempt: bool = True,
    ) -> None:
        """Requeue messages without a journal entry."""
        attempts = flight.attempt - (not counts_attempt)
        self._open.land(flight, len(offsets), self.now_unix_ms)
        for offset in offsets:
            back = Requeued(offset, flight.key, attempts, flight.first_taken_unix_ms)
            self._open.requeue(back, due_unix_ms)
        self.effects.wake = True

    def revive(self, offsets: Iterable[int]) -> None:
        """Requeue messages that were to be moved away, with a journal entry."""
        messages = self._open
        revived: list[int] = []
        for offset in offsets:
            item = messages.items.get(offset)
            if isinstance(item, Moving):
                messages.remove(offset, self.now_unix_ms)
                back = Requeued(offset, item.key, item.attempts, item.first_taken_unix_ms)
                messages.requeue(back, AT_ONCE)
                revived.append(offset)
        if revived:
            self.add_journal(journal.encode_return(revived, AT_ONCE, counts_attempt=True))
            self.effects.wake = True

    def extend(self, wanted: Mapping[int, tuple[Flight, int]]) -> None:
        """Set the leases of messages, each in milliseconds from now."""
        groups: dict[int, ByFlight] = {}
        for offset, (flight, span_ms) in wanted.items():
            groups.setdefault(span_ms, {}).setdefault(flight, []).append(offset)
        for span_ms, by_flight in groups.items():
            if span_ms <= 0:
                self.requeue(by_flight, AT_ONCE)
                continue
            due_unix_ms = self.now_unix_ms + span_ms
            extended: list[int] = []
            for flight, offsets in by_flight.items():
                self._open.extend(flight, offsets, due_unix_ms)
                extended += offsets
            self.add_journal(journal.encode_extend(extended, due_unix_ms))

    def kill(self, flight: Flight, offsets: list[int], attempts: int, reason: str) -> None:
        """Mark messages as dead, to be moved; their key is free again."""
        self._open.land(flight, len(offsets), self.now_unix_ms)
        for offset in offsets:
            back = Requeued(offset, flight.key, attempts, flight.first_taken_unix_ms)
            self._open.kill(back, reason)
            self.effects.dead.append(Dead(offset, attempts, reason))
        self.effects.wake = True
