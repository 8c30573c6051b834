"""Delayed messages that leave their stream for the one of another shard."""

from features.delay.entries import RUN, encode_waiting, parse_waiting
from features.delay.message_locations import MessageLocation
from gateway.coalescer import Part
from gateway.delays.batches import bodies_of, encode_bodies, is_intact_batch
from gateway.delays.due_batch import removal_entries
from gateway.delays.manager import Delays
from gateway.errors import GatewayError
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun

Live = list[tuple[int, MessageLocation, bytes]]
"""Number, location and entry of messages that wait, and of runs."""


class Leaving:
    """Messages that are taken out of their stream; ``done`` follows the append of ``removal``."""

    def __init__(self, delays: Delays, live: Live, now_unix_ms: int) -> None:
        """``live``: as ``DelayStream.live_in`` returns them, in the same turn of the loop."""
        self._delays = delays
        self._live = live
        state = delays.state
        self.entries = [
            (number, _without_cancelled(delays, number, value)) for number, _, value in live
        ]
        """Number and entry of each, without the messages of runs that were cancelled."""
        numbers = [number for number, _, _ in live]
        runs = [number for number in numbers if state.runs.get(number) is not None]
        alone = [number for number in numbers if state.runs.get(number) is None]
        for number in numbers:
            state.remove(number)
        run = RecordRun(None, tuple(removal_entries(alone, runs)), NO_HEADERS, now_unix_ms)
        self.removal: Part = (delays.stream.partition, run)

    def done(self, error: GatewayError | None) -> None:
        """Forget the messages; or put them back, after an error."""
        state, misplaced = self._delays.state, self._delays.stream.misplaced
        if error is not None:
            for number, location, value in self._live:
                due_unix_ms, *_ = parse_waiting(value)
                state.back(number, location, due_unix_ms)
            return
        state.settled([(number, location) for number, location, _ in self._live])
        for number, *_ in self._live:
            self._delays.bodies.drop(number)
            misplaced.pop(number, None)


def _without_cancelled(delays: Delays, number: int, value: bytes) -> bytes:
    """Return the entry of a message, or of a run without the messages that were cancelled."""
    run = delays.state.runs.get(number)
    if run is None or not run.gone:
        return value
    due_unix_ms, _, topic_uuid, partition, timestamp_unix_ms, tail = parse_waiting(value)
    if not is_intact_batch(tail, run.count):
        return value  # it is dropped when it is due
    batch = encode_bodies(bodies_of(tail, [one - number for one in run.present()]))
    return encode_waiting(
        due_unix_ms, number, topic_uuid, partition, timestamp_unix_ms, batch, kind=RUN
    )
