"""Receivers that are too slow for QoS 0: they go on in the log, where they stopped.

QoS 0 leaves before the log has it (docs/adr/0007), so where a receiver stops has no offset yet.
It has a number: a feed counts the messages that leave early, and they come into the log in that
order. When the first one that a receiver has not had becomes readable, its offset is known, and
the receiver reads the log from there as all do who are behind (``catch_up``). What does not
leave early (QoS 1 and 2 for a subscription of QoS 0, other protocols) has an offset when it
leaves: of that, it reads all from where the live end was. docs/adr/0015 has the reasons.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from adapters.mqtt.ports import FeedPort, SessionPort
from adapters.mqtt.reading.slow_receiver import SlowReceiver
from adapters.mqtt.wire import PUBLISHES, MixedTopicPublishes, PublishRun
from gateway.clock import Clock

LAG_SAMPLES: Final = 256  # steps in which the bounds are measured
_FAR: Final = 1 << 62

LivePublishes = PublishRun | MixedTopicPublishes


class LagBounds(NamedTuple):
    """Limits on a receiver's lag: bytes of the log, and milliseconds."""

    bytes_max: int = _FAR
    ms_max: int = _FAR


NO_BOUNDS: Final = LagBounds()


class _LagSample(NamedTuple):
    """The live end at some time: its offset, and the bytes that had come before it."""

    offset: int
    bytes_before: int
    ms: int


class SlowReceivers:
    """Slow receivers of one feed; ``members`` are those that are behind.

    A receiver that is not behind costs nothing here.
    """

    def __init__(self, feed: "FeedPort", clock: Clock, bounds: LagBounds) -> None:
        self.feed = feed
        self.members: dict[SessionPort, SlowReceiver] = {}
        self._clock = clock
        self._bounds = bounds
        self._issued = 0  # messages that have left early
        self._seen = 0  # of these, up to which number the log has them
        self._pending: deque[LivePublishes] = deque()  # not seen yet, since there are members
        self._last: LivePublishes | None = None  # of those that left early, until all are seen
        self._waiting: list[SlowReceiver] = []  # whose offsets are not known, by number
        self._bytes = 0
        self._samples: deque[_LagSample] = deque()

    def number(self, early: LivePublishes) -> None:
        """Number messages of QoS 0 that are about to leave, the log having taken them."""
        early.live_number = self._issued + 1
        self._issued += len(early.payloads)
        self._last = early
        if self.members:
            self._pending.append(early)

    def holds_back(self, session: "SessionPort", run: PublishRun) -> bool:
        """Say whether messages of QoS 0 that come now reach a session later, from the log.

        It is asked for who is slow, or behind anywhere.
        """
        slow_receiver = self.members.get(session)
        if slow_receiver is None:
            connection = session.connection
            assert connection is not None
            if connection.out_bytes <= session.context.receiver_bytes_max:
                return False  # behind on another feed
            slow_receiver = self._fall_behind(session, run)
        slow_receiver.outstanding += len(run.payloads)
        return True

    def _fall_behind(self, session: "SessionPort", run: PublishRun) -> SlowReceiver:
        """Let a session be behind from a run on."""
        number, offset = run.live_number, self.feed.live_offset
        if not number:
            number, offset = self._issued + 1, run.base_offset
        slow_receiver = SlowReceiver(session, self, number, offset)
        if not self.members and self._last is not None:
            self._pending.append(self._last)  # the log may show a part of it first
        self.members[session] = slow_receiver
        insort(self._waiting, slow_receiver, key=_number)
        if self._is_sample_due():
            self._sample(offset)
        return slow_receiver

    def remove(self, slow_receiver: SlowReceiver) -> None:
        """Remove a receiver that is behind no more."""
        self.members.pop(slow_receiver.session, None)
        if slow_receiver in self._waiting:
            self._waiting.remove(slow_receiver)
        if not self.members:
            self._pending.clear()
            self._samples.clear()

    def join(self, slow_receiver: SlowReceiver) -> None:
        """Let a receiver that has read the whole log go on live.

        It gets the messages on their way to the log first, then what is new.
        """
        session, pending = slow_receiver.session, tuple(self._pending)
        slow_receiver.leave()
        for early in pending:
            self._give(session, early)
        if self.members:  # others, or it is behind again
            self._pending = deque(pending)

    def _give(self, session: "SessionPort", early: LivePublishes) -> None:
        context = session.context
        for whole in early.runs() if isinstance(early, MixedTopicPublishes) else (early,):
            run = self._not_seen(whole)
            if run is None:
                continue
            match = context.distributor.matches_by_follower(run.topic).get(session)
            if match is not None:
                context.distributor.deliver_to(session, run, match, self.feed)

    def _not_seen(self, run: PublishRun) -> PublishRun | None:
        """Return what of a run the log does not have yet: of one that was cut it may have some."""
        seen = self._seen - run.live_number + 1
        if seen <= 0:
            return run
        if seen >= len(run.payloads):
            return None
        rest = run.part(run.payloads[seen:], qos=run.qos)
        rest.live_number = run.live_number + seen
        return rest

    def close(self) -> None:
        """The feed has ended."""
        for slow_receiver in tuple(self.members.values()):
            slow_receiver.leave()

    # --- what becomes readable

    def on_batch(
        self, natives: Sequence[tuple[int, object]], size_bytes: int, end: int
    ) -> None:
        """A batch was handed out, up to ``end``: with what our own clients published in it."""
        if self._seen < self._issued or self._waiting:
            if self._waiting:
                for offset, native in natives:
                    self._see_native(offset, native)
            else:
                for offset, native in reversed(natives):
                    if self._see_native(offset, native):
                        break
            self._seen_all(end)
        if self.members:
            self.grow(size_bytes, end)

    def _see_native(self, offset: int, native: object) -> bool:
        """Learn where messages that left early lie; False for others."""
        if not isinstance(native, PUBLISHES) or not native.live_number:
            return False
        self._see(native.live_number, len(native.payloads), offset)
        return True

    def see(self, run: PublishRun) -> int:
        """Learn where messages that left early lie, from the log; return their number.

        They are the next ones, as numbers and offsets rise together.
        """
        number = self._seen + 1
        if number <= self._issued:  # else it is another's, which says that it is ours
            self._see(number, len(run.payloads), run.base_offset)
        return number

    def _see(self, first: int, count: int, offset: int) -> None:
        self._seen = max(self._seen, min(first + count - 1, self._issued))
        while self._waiting and self._waiting[0].number <= self._seen:
            slow_receiver = self._waiting.pop(0)
            slow_receiver.begin(offset + max(slow_receiver.number - first, 0))

    def _seen_all(self, end: int) -> None:
        """Up to ``end`` all that left early is known."""
        pending, seen = self._pending, self._seen
        if seen >= self._issued:
            self._last = None
        while pending and pending[0].live_number + len(pending[0].payloads) <= seen + 1:
            pending.popleft()
        while self._waiting and self._waiting[0].number <= seen + 1:
            self._waiting.pop(0).begin(end)

    @property
    def issued(self) -> int:
        """Number of messages that have left early."""
        return self._issued

    def settle(self, number: int) -> None:
        """Nothing up to a number is on its way: the log has it, or has refused it."""
        self._seen = max(self._seen, number)
        self._seen_all(self.feed.live_offset)

    # --- how far back anybody may be

    def grow(self, size_bytes: int, end: int) -> None:
        """Note how the log grows; who is too far back skips to what is new."""
        self._bytes += size_bytes
        if not self._is_sample_due():
            return
        self._sample(end)
        for slow_receiver in tuple(self.members.values()):
            if self.is_beyond(slow_receiver.offset):
                slow_receiver.skip()

    def is_beyond(self, offset: int) -> bool:
        """Say whether a place is further back than the bounds allow."""
        marks, bounds = self._samples, self._bounds
        bytes_min = self._bytes - bounds.bytes_max
        ms_min = self._clock.monotonic_ms() - bounds.ms_max
        while marks and (marks[0].bytes_before < bytes_min or marks[0].ms < ms_min):
            marks.popleft()
        return offset < (marks[0].offset if marks else self.feed.live_offset)

    def _is_sample_due(self) -> bool:
        """Say whether the last mark is too long ago for who falls behind now."""
        if not self._samples:
            return True
        last, bounds = self._samples[-1], self._bounds
        return self._bytes - last.bytes_before >= max(
            bounds.bytes_max // LAG_SAMPLES, 1
        ) or self._clock.monotonic_ms() - last.ms >= max(bounds.ms_max // LAG_SAMPLES, 1)

    def _sample(self, offset: int) -> None:
        self._samples.append(_LagSample(offset, self._bytes, self._clock.monotonic_ms()))


def _number(slow_receiver: SlowReceiver) -> int:
    return slow_receiver.number
