"""A registered consumer for ``queue_program``: messages are pushed to it, and settled by ranges."""

from collections.abc import Callable, Sequence

from features.queue.model import Outcome, SettledRange
from gateway.errors import StorageUnavailable
from gateway.queues.consumers import CancelReason
from gateway.queues.delivered_ranges import DeliveredRange
from gateway.queues.queue import Queue

CREDIT = 40
TURNS_OF_A_HOLDER = 50  # then its connection ends, and another comes

Say = Callable[..., None]


class PushedWork:
    """Acknowledges most messages, rejects some, and leaves a few to the end of its holder."""

    def __init__(self, queue: Queue, say: Say, new_holder: Callable[[], int]) -> None:
        self._queue = queue
        self._say = say
        self._new_holder = new_holder
        self._turns = 0
        self.subscribe()

    def subscribe(self) -> None:
        self.holder = self._new_holder()
        self.consumer = self._queue.consumers.subscribe(
            self, holder=self.holder, credit=CREDIT, lease_ms=60_000
        )

    def on_ranges(self, ranges: Sequence[DeliveredRange]) -> None:
        for one in ranges:
            self._settle(one)
        self.consumer.grant(sum(len(one.offsets) for one in ranges))
        self._turns += 1
        if self._turns % TURNS_OF_A_HOLDER == 0:
            self.consumer.cancel()
            self._queue.end_holder(self.holder)
            self.subscribe()

    def _settle(self, delivered: DeliveredRange) -> None:
        settled: list[SettledRange] = []
        numbers: list[int] = []
        for record in self._queue.records_of(delivered):
            number = int(record.value or b"")
            self._say("got", number, delivered.attempt)
            if number % 10 == 7 and delivered.attempt == 1:
                continue  # it comes back when the holder ends
            outcome = Outcome.REJECT if number % 10 == 3 else Outcome.ACK
            offsets = range(record.offset, record.offset + 1)
            settled.append(SettledRange(offsets, delivered.attempt, outcome))
            numbers.append(number)

        def answered(counts: list[int], error: StorageUnavailable | None) -> None:
            for number, one, count in zip(numbers, settled, counts, strict=True):
                if count and error is None:
                    self._say("acked" if one.outcome is Outcome.ACK else "moved", number)

        self._queue.settle_ranges(delivered.number, settled, answered, holder=self.holder)

    def on_cancelled(self, reason: CancelReason) -> None:
        self._say("cancelled", reason.name)
