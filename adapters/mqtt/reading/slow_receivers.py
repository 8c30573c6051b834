"""Receivers that are too slow for QoS 0: they read the log from where they stopped.

Messages of QoS 0 are delivered live, before the log has them (docs/adr/0007). So the message at
which a receiver stops has no offset yet. It has a number: a feed numbers the messages that it
delivers live, and they come into the log in that order. When the first message that a receiver
has not had becomes readable, its offset is known, and the receiver reads the log from there, as
all followers do that are behind (``catch_up``).

Other messages (QoS 1 and 2 for a subscription of QoS 0, other protocols) have an offset when they
are delivered: the receiver reads those from where the live end was. docs/adr/0015 has the reasons.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from adapters.mqtt.ports import FeedPort, SessionPort
from adapters.mqtt.reading.slow_receiver import SlowReceiver
from adapters.mqtt.wire import PUBLISHES, MixedTopicPublishes, PublishRun
from gateway.clock import Clock

LAG_SAMPLES: Final = 256  # samples within the bounds
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
        self._issued = 0  # number of messages that were delivered live
        self._seen = 0  # the highest of these numbers that the log has
        self._pending: deque[LivePublishes] = (
            deque()
        )  # not in the log yet; filled while there are members
        self._last: LivePublishes | None = (
            None  # that was delivered live, until the log has all
        )
        self._waiting: list[
            SlowReceiver
        ] = []  # receivers whose offsets are not known, by number
        self._bytes = 0
        self._samples: deque[_LagSample] = deque()

    def number(self, early: LivePublishes) -> None:
        """Number messages of QoS 0 that are about to be delivered live; their append has begun."""
        early.live_number = self._issued + 1
        self._issued += len(early.payloads)
        self._last = early
        if self.members:
            self._pending.append(early)

    def holds_back(self, session: "SessionPort", run: PublishRun) -> bool:
        """Return whether a session gets a new run of QoS 0 later, from the log.

        Called for sessions that are slow, or behind on any feed.
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
        """Make a session a slow receiver, from a run on."""
        number, offset = run.live_number, self.feed.live_offset
        if not number:
            number, offset = self._issued + 1, run.base_offset
        slow_receiver = SlowReceiver(session, self, number, offset)
        if not self.members and self._last is not None:
            self._pending.append(self._last)  # a part of it may become readable first
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
        """Return the messages of a run that the log does not have; of a cut run, the rest."""
        seen = self._seen - run.live_number + 1
        if seen <= 0:
            return run
        if seen >= len(run.payloads):
            return None
        rest = run.part(run.payloads[seen:], qos=run.qos)
        rest.live_number = run.live_number + seen
        return rest

    def close(self) -> None:
        """End with the feed."""
        for slow_receiver in tuple(self.members.values()):
            slow_receiver.leave()

    # --- batches that become readable

    def on_batch(
        self, natives: Sequence[tuple[int, object]], size_bytes: int, end: int
    ) -> None:
        """Note a delivered batch up to ``end``; ``natives`` are the MQTT publishes in it."""
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
        """Note the offset of messages that were delivered live; False for others."""
        if not isinstance(native, PUBLISHES) or not native.live_number:
            return False
        self._see(native.live_number, len(native.payloads), offset)
        return True

    def see(self, run: PublishRun) -> int:
        """Note the offset of live-delivered messages that were read from the log.

        Return their number: they are the next ones, as numbers and offsets rise together.
        """
        number = self._seen + 1
        if number <= self._issued:  # else its headers only claim that it came by MQTT
            self._see(number, len(run.payloads), run.base_offset)
        return number

    def _see(self, first: int, count: int, offset: int) -> None:
        self._seen = max(self._seen, min(first + count - 1, self._issued))
        while self._waiting and self._waiting[0].number <= self._seen:
            slow_receiver = self._waiting.pop(0)
            slow_receiver.begin(offset + max(slow_receiver.number - first, 0))

    def _seen_all(self, end: int) -> None:
        """Settle numbers: all messages below ``end`` that were delivered live are known."""
        pending, seen = self._pending, self._seen
        if seen >= self._issued:
            self._last = None
        while pending and pending[0].live_number + len(pending[0].payloads) <= seen + 1:
            pending.popleft()
        while self._waiting and self._waiting[0].number <= seen + 1:
            self._waiting.pop(0).begin(end)

    @property
    def issued(self) -> int:
        """Number of messages that were delivered live."""
        return self._issued

    def settle(self, number: int) -> None:
        """Note that the log has, or has refused, every message up to a number."""
        self._seen = max(self._seen, number)
        self._seen_all(self.feed.live_offset)

    # --- limits of the lag

    def grow(self, size_bytes: int, end: int) -> None:
        """Note growth of the log; receivers beyond the bounds skip to new messages."""
        self._bytes += size_bytes
        if not self._is_sample_due():
            return
        self._sample(end)
        for slow_receiver in tuple(self.members.values()):
            if self.is_beyond(slow_receiver.offset):
                slow_receiver.skip()

    def is_beyond(self, offset: int) -> bool:
        """Return whether an offset is further back than the bounds allow."""
        marks, bounds = self._samples, self._bounds
        bytes_min = self._bytes - bounds.bytes_max
        ms_min = self._clock.monotonic_ms() - bounds.ms_max
        while marks and (marks[0].bytes_before < bytes_min or marks[0].ms < ms_min):
            marks.popleft()
        return offset < (marks[0].offset if marks else self.feed.live_offset)

    def _is_sample_due(self) -> bool:
        """Return whether the last sample is too old for a receiver that falls behind now."""
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
