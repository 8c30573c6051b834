"""Messages in flight to one client at QoS 1 and 2, and their packet identifiers.

A message gets a sequence number when it is sent; its packet identifier is that number modulo
65,535, plus 1. So a run of messages has consecutive identifiers, and after a crash the same
messages have the same ones. Of a message only its position in the log is kept here.

A restart goes back to the state that was stored last. Messages that were settled after it are in
flight again. So their identifiers are free only when a state in which they are settled is stored.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.wire import PACKET_ID_MAX
from features.ranges import RangeSet

RETAINED: Final = -1  # as a partition id: the messages are retained ones, by topic
REFUSED: Final = 0x80
STATES_PER_ROUND: Final = 8  # that a busy session has kept while it uses all identifiers once


class Inflight(NamedTuple):
    """A run on its way: ``length`` messages from ``first_offset`` on, or one per topic."""

    first_seq: int
    length: int
    partition_id: int
    first_offset: int
    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()
    group: str = ""  # of a shared subscription: its positions are the group's
    topics: tuple[bytes, ...] = ()
    attempt: int = 0  # of a shared subscription: how often the group has dealt it out


class Settled(NamedTuple):
    """A part of a run of a shared subscription that is settled: messages ``start`` to ``stop``."""

    inflight: Inflight
    start: int
    stop: int


class Unsettled(NamedTuple):
    """A part of a run that the client has not settled: messages ``start`` to ``stop``."""

    inflight: Inflight
    start: int
    stop: int
    is_received: bool  # QoS 2: PUBREC has come, only PUBREL and PUBCOMP are left


def packet_id_of(seq: int) -> int:
    """Return the packet identifier of a sequence number.

    >>> packet_id_of(0), packet_id_of(65_534), packet_id_of(65_535)
    (1, 65535, 1)
    """
    return seq % PACKET_ID_MAX + 1


class Outbox:
    """The window of one session. ``window`` is what the client, or the config, allows."""

    __slots__ = (
        "base",
        "done",
        "inflight",
        "is_shared",
        "kept_base",
        "next_seq",
        "received",
        "settled",
        "window",
        "written_base",
    )

    def __init__(self, window: int = PACKET_ID_MAX, *, next_seq: int = 0) -> None:
        self.window = window
        self.base = next_seq  # the lowest that is not settled
        self.kept_base = next_seq  # the lowest that a restart may bring back
        self.written_base = next_seq  # as kept_base, when all that is written is kept
        self.next_seq = next_seq
        self.done = RangeSet()  # settled above base: one range, mostly
        self.received: set[int] = set()
        self.inflight: list[Inflight] = []
        self.is_shared = False  # it has had messages of a shared subscription
        self.settled: list[Settled] = []  # of those, since ``take_settled``

    @property
    def room(self) -> int:
        """Number of messages that may still leave."""
        next_seq = self.next_seq
        return min(
            self.window - (next_seq - self.base) + self.done.count,
            PACKET_ID_MAX - (next_seq - self.kept_base),
        )

    @property
    def count(self) -> int:
        """Number of messages in flight."""
        return self.next_seq - self.base - self.done.count

    @property
    def wants_state_kept(self) -> bool:
        """Whether many identifiers wait for a stored state, sooner than by a checkpoint."""
        return self.base - self.written_base > PACKET_ID_MAX // STATES_PER_ROUND

    def write(self) -> int:
        """The state as it is now is being written down: return what to say when it is kept."""
        self.written_base = self.base
        return self.base

    def kept(self, base: int) -> None:
        """A state is kept, or none ever is: nothing below ``base`` comes back."""
        self.kept_base = max(self.kept_base, base)

    def push(  # noqa: PLR0913 - the fields of a run
        self,
        count: int,
        qos: int,
        *,
        partition_id: int,
        first_offset: int,
        retain: bool = False,
        identifiers: tuple[int, ...] = (),
        group: str = "",
        topics: tuple[bytes, ...] = (),
        attempt: int = 0,
    ) -> Inflight:
        """Take the next ``count`` sequence numbers; there is ``room`` for them."""
        run = Inflight(
            self.next_seq,
            count,
            partition_id,
            first_offset,
            qos,
            retain,
            identifiers,
            group,
            topics,
            attempt,
        )
        self.is_shared = self.is_shared or bool(group)
        self.inflight.append(run)
        self.next_seq += count
        return run

    def restore(self, run: Inflight) -> None:
        """Take back a run that was journaled; in order of sequence numbers."""
        self.is_shared = self.is_shared or bool(run.group)
        self.inflight.append(run)
        self.next_seq = max(self.next_seq, run.first_seq + run.length)

    def restored(self) -> None:
        """All was restored: what no run covers (its journal was lost) counts as settled."""
        covered = self.base
        for run in tuple(self.inflight):
            self.drop(covered, run.first_seq - covered)
            covered = max(covered, run.first_seq + run.length)
        self.drop(covered, self.next_seq - covered)
        self.received.intersection_update(range(self.base, self.next_seq))

    def settle(self, packet_ids: Sequence[int], qos: int) -> int:
        """Process PUBACK (QoS 1) or PUBCOMP (2); return how many of them ended a delivery.

        Identifiers without a message in flight are skipped: a client may repeat an acknowledgement
        after a reconnect. Errors: ``MqttError`` when the acknowledgement is of the other QoS.
        """
        if self._is_next_run(packet_ids, qos):
            end = self.base + len(packet_ids)
            if self.is_shared:
                self._note_settled(self.base, end)
            self._advance(end)
            return len(packet_ids)
        settled = 0
        for packet_id in packet_ids:
            run, seq = self._find(packet_id)
            if run is None:
                continue
            if run.qos != qos or (qos == 2 and seq not in self.received):  # noqa: PLR2004
                raise MqttError(
                    ReasonCode.PROTOCOL_ERROR,
                    f"packet identifier {packet_id} is not at that step of QoS {run.qos}",
                )
            self._settle_one(run, seq)
            settled += 1
        self._advance(self.base)
        return settled

    def receive(
        self, packet_ids: Sequence[int], reason_codes: Sequence[int] | None
    ) -> tuple[list[int], list[int]]:
        """Process PUBREC; return (identifiers to release, identifiers without a message in flight).

        A refusal (0x80 and above) ends the delivery (MQTT 5.0 section 4.3.3). A refusal without a
        message in flight is skipped, because PUBREL never follows a refusal. Error: ``MqttError``
        when the message is of QoS 1.
        """
        release, unknown = [], []
        codes = reason_codes or (0,) * len(packet_ids)
        for packet_id, code in zip(packet_ids, codes, strict=True):
            run, seq = self._find(packet_id)
            if run is None:
                if code < REFUSED:
                    unknown.append(packet_id)
                continue
            if run.qos != 2:  # noqa: PLR2004
                raise MqttError(
                    ReasonCode.PROTOCOL_ERROR, f"PUBREC for {packet_id}, which is of QoS 1"
                )
            if code >= REFUSED:
                self._settle_one(run, seq)
            else:
                self.received.add(seq)
                release.append(packet_id)
        self._advance(self.base)
        return release, unknown

    def drop(self, first_seq: int, count: int) -> None:
        """Messages that are not there any more (expired, cut off) count as settled."""
        first, end = max(first_seq, self.base), min(first_seq + count, self.next_seq)
        if first < end:
            if self.is_shared:
                for gap_first, gap_last in self.done.gaps(first, end - 1):
                    self._note_settled(gap_first, gap_last + 1)
            self.received.difference_update(range(first, end))
            self.done.add(first, end - 1)
        self._advance(self.base)

    def _settle_one(self, run: Inflight, seq: int) -> None:
        self.received.discard(seq)
        if seq == self.base:  # as most are: in order
            self.base += 1
        else:
            self.done.add(seq, seq)
        if run.group:
            at = seq - run.first_seq
            self.settled.append(Settled(run, at, at + 1))

    def _note_settled(self, first_seq: int, end_seq: int) -> None:
        """Remember what of shared subscriptions is among messages that are settled now."""
        inflight = self.inflight
        at = max(bisect_right(inflight, first_seq, key=_first_seq) - 1, 0)
        while at < len(inflight) and inflight[at].first_seq < end_seq:
            run = inflight[at]
            start = max(first_seq - run.first_seq, 0)
            stop = min(end_seq - run.first_seq, run.length)
            if run.group and start < stop:
                self.settled.append(Settled(run, start, stop))
            at += 1

    def take_settled(self) -> list[Settled]:
        """Return what of shared subscriptions was settled since the last time."""
        settled, self.settled = self.settled, []
        return settled

    def set_attempts(self, attempts: Mapping[int, int]) -> None:
        """After a restart: say which attempt runs are, by first sequence number."""
        self.inflight = [
            run._replace(attempt=attempts.get(run.first_seq, run.attempt))
            for run in self.inflight
        ]

    def unsettled(self, from_seq: int = 0) -> Iterator[Unsettled]:
        """Yield the messages in flight in sending order, in parts of one state.

        From ``from_seq`` on. Nothing may be settled meanwhile.
        """
        lowest = max(self.base, from_seq)
        begin = max(bisect_right(self.inflight, lowest, key=_first_seq) - 1, 0)
        for run in islice(self.inflight, begin, None):
            first_seq, end_seq = run.first_seq, run.first_seq + run.length
            for first, last in self.done.gaps(max(lowest, first_seq), end_seq - 1):
                yield from self._parts(run, first - first_seq, last + 1 - first_seq)

    def next_due(self, first_seq: int, end_seq: int, count_max: int) -> tuple[int, int]:
        """Return (first, end) of the first ones in a row that the client has not acknowledged.

        From ``first_seq`` on and below ``end_seq`` (all have left), at most ``count_max`` (1 or
        more); ``end_seq`` twice when there are none. PUBREC acknowledges, too.
        """
        received = self.received
        for first, last in self.done.gaps(max(first_seq, self.base), end_seq - 1):
            seq = first
            while seq <= last and seq in received:
                seq += 1
            if seq > last:
                continue
            stop = min(last + 1, seq + count_max)
            if received:
                stop = next((one for one in range(seq, stop) if one in received), stop)
            return seq, stop
        return end_seq, end_seq

    def _parts(self, run: Inflight, start: int, end: int) -> Iterator[Unsettled]:
        """Yield messages of a run, none of them settled, in parts of one state."""
        received, first_seq = self.received, run.first_seq
        while start < end:
            is_received = first_seq + start in received
            stop = start + 1
            while stop < end and (first_seq + stop in received) == is_received:
                stop += 1
            yield Unsettled(run, start, stop, is_received)
            start = stop

    def _is_next_run(self, packet_ids: Sequence[int], qos: int) -> bool:
        """Say whether these are just the next identifiers in order, all of QoS 1."""
        count = len(packet_ids)
        if qos != 1 or self.done.count or count > self.next_seq - self.base:
            return False
        first = packet_id_of(self.base)
        if packet_ids[0] != first or first + count > PACKET_ID_MAX + 1:
            return False
        if count > 1 and tuple(range(first, first + count)) != tuple(packet_ids):
            return False
        end = self.base + count
        for run in self.inflight:
            if run.first_seq >= end:
                break
            if run.qos != 1:
                return False
        return True

    def _advance(self, base: int) -> None:
        """Move the lower end past settled messages, and forget runs that are settled wholly."""
        done = self.done
        if done.count:
            first, last = next(iter(done))
            if first <= base:
                base = max(base, last + 1)
                done.drop_before(base)
        self.base = base
        gone = 0
        for run in self.inflight:
            if run.first_seq + run.length > base:
                break
            gone += 1
        if gone:
            del self.inflight[:gone]

    def _find(self, packet_id: int) -> tuple[Inflight | None, int]:
        seq = self.base + (packet_id - 1 - self.base) % PACKET_ID_MAX
        done = self.done  # mostly empty: not asked then, for each call counts here
        if seq >= self.next_seq or (done.count and seq in done):
            return None, seq
        at = bisect_right(self.inflight, seq, key=_first_seq) - 1
        assert at >= 0, "each sequence number on its way is of a run"
        return self.inflight[at], seq


def _first_seq(run: Inflight) -> int:
    return run.first_seq
