"""One call by which messages leave their flights unsettled: requeued, or moved away.

A message that has used its attempts is requeued too: it is dead only when it would be delivered
again, so until then its last receiver may still acknowledge it (as in Amazon SQS). One beyond its
delivery limit is dead at once (as in RabbitMQ).
"""

from collections.abc import Iterable, Mapping

from features.queue import journal
from features.queue.acking import Ids
from features.queue.model import AT_ONCE, DELIVERY_LIMIT, Dead, Effects, Policy, Result
from features.queue.open_messages import OpenMessages
from features.queue.retrying import DeliveryEnd, is_beyond_limit, retry_delay_ms
from features.queue.states import Flight, Moving, Requeued

ByFlight = dict[Flight, list[int]]


class Requeueing:
    """Requeueing by one call; ``effects`` are those of the call so far."""

    __slots__ = ("_open", "_policy", "effects", "now_unix_ms")

    def __init__(self, messages: OpenMessages, policy: Policy, now_unix_ms: int) -> None:
        self._open = messages
        self._policy = policy
        self.now_unix_ms = now_unix_ms
        self.effects = Effects()

    def add_journal(self, change: bytes) -> None:
        """Add a change to the call's journal entry."""
        written = self.effects.journal
        self.effects.journal = change if written is None else written + change

    def release(self, ids: Ids, due_unix_ms: int, ending: DeliveryEnd) -> list[Result]:
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
        self.requeue(by_flight, due_unix_ms, ending)
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

    def end_holder(self, holder: int, ending: DeliveryEnd) -> None:
        """Requeue all that a holder has.

        Written only where the attempt does not count as failed, or there is a delay to be kept.
        """
        messages = self._open
        flights = {flight: messages.members(flight) for flight in messages.flights_of(holder)}
        if ending is not DeliveryEnd.FAILED or self._policy.retry_delay_ms:
            self.requeue(flights, AT_ONCE, ending)
            return
        for flight, offsets in flights.items():
            self._put_back(flight, offsets, AT_ONCE, ending)

    def requeue(
        self, by_flight: ByFlight, due_unix_ms: int, ending: DeliveryEnd = DeliveryEnd.FAILED
    ) -> None:
        """Requeue messages at a receiver's request, with a journal entry.

        Where it asks for no time, the policy's delay counts from now. Nothing is written for
        messages that are dead: after a lost move they are in flight, and fail again.
        """
        returned: dict[int, list[int]] = {}
        for flight, offsets in by_flight.items():
            due = due_unix_ms or self._retry_unix_ms(flight, ending, self.now_unix_ms)
            if self._put_back(flight, offsets, due, ending):
                returned.setdefault(due, []).extend(offsets)
        for due, offsets in returned.items():
            self.add_journal(journal.encode_return(offsets, due, ending))

    def end_lease(self, flight: Flight, offsets: list[int]) -> None:
        """Requeue the messages of a flight whose lease is over; nothing is written.

        After a restart the same follows from the lease.
        """
        due = self._retry_unix_ms(flight, DeliveryEnd.FAILED, flight.lease_end_unix_ms)
        if due <= self.now_unix_ms:
            due = AT_ONCE
        self._put_back(flight, offsets, due, DeliveryEnd.FAILED)

    def _retry_unix_ms(self, flight: Flight, ending: DeliveryEnd, from_unix_ms: int) -> int:
        """Return the time at which messages of a flight are visible again."""
        policy = self._policy
        if not policy.retry_delay_ms:
            return AT_ONCE
        failed_count = flight.attempt - ending.spared(flight.spared)
        delay_ms = retry_delay_ms(policy, ending, flight.attempt, failed_count)
        return from_unix_ms + delay_ms if delay_ms else AT_ONCE

    def _put_back(
        self, flight: Flight, offsets: list[int], due_unix_ms: int, ending: DeliveryEnd
    ) -> bool:
        """Requeue messages without a journal entry; False when they are dead instead."""
        attempts = ending.attempts(flight.attempt)
        spared = ending.spared(flight.spared)
        if is_beyond_limit(self._policy, attempts - spared):
            self.kill(flight, offsets, attempts, DELIVERY_LIMIT, spared)
            return False
        self._open.land(flight, len(offsets), self.now_unix_ms)
        for offset in offsets:
            back = Requeued(offset, flight.key, attempts, flight.first_taken_unix_ms, spared)
            self._open.requeue(back, due_unix_ms)
        self.effects.wake = True
        return True

    def revive(self, offsets: Iterable[int]) -> None:
        """Requeue messages that were to be moved away, with a journal entry."""
        messages = self._open
        revived: list[int] = []
        for offset in offsets:
            item = messages.items.get(offset)
            if isinstance(item, Moving):
                messages.remove(offset, self.now_unix_ms)
                back = Requeued(
                    offset, item.key, item.attempts, item.first_taken_unix_ms, item.spared
                )
                messages.requeue(back, AT_ONCE)
                revived.append(offset)
        if revived:
            self.add_journal(journal.encode_return(revived, AT_ONCE, DeliveryEnd.FAILED))
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

    def kill(
        self,
        flight: Flight,
        offsets: list[int],
        attempts: int,
        reason: str,
        spared: int | None = None,
    ) -> None:
        """Mark messages as dead, to be moved; their key is free again."""
        spared = flight.spared if spared is None else spared
        self._open.land(flight, len(offsets), self.now_unix_ms)
        for offset in offsets:
            back = Requeued(offset, flight.key, attempts, flight.first_taken_unix_ms, spared)
            self._open.kill(back, reason)
            self.effects.dead.append(Dead(offset, attempts, reason))
        self.effects.wake = True
