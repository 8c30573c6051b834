"""The window of one client against a plain dict: any order of leaving and settling."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adapters.mqtt.errors import MqttError, ReasonCode
from adapters.mqtt.inflight.outbox import Inflight, Outbox, packet_id_of
from adapters.mqtt.wire import PACKET_ID_MAX
from tests.support.examples import examples

SENT, RECEIVED = "sent", "received"


class OutboxMachine(RuleBasedStateMachine):
    """``model``: sequence number -> (QoS, offset, state) of what is not settled."""

    def __init__(self) -> None:
        super().__init__()
        self.start = PACKET_ID_MAX - 20  # the identifiers wrap soon
        self.outbox = Outbox(64, next_seq=self.start)
        self.model: dict[int, tuple[int, int, str]] = {}
        self.next_seq = self.start
        self.runs: dict[int, Inflight] = {}

    @rule(count=st.integers(1, 12), qos=st.sampled_from([1, 1, 2]))
    def push(self, count: int, qos: int) -> None:
        count = min(count, self.outbox.room)
        if count <= 0:
            return
        run = self.outbox.push(count, qos, partition_id=1, first_offset=self.next_seq * 3)
        assert run.first_seq == self.next_seq
        for at in range(count):
            self.model[self.next_seq + at] = (qos, run.first_offset + at, SENT)
        self.runs[run.first_seq] = run
        self.next_seq += count

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        seqs = data.draw(st.lists(st.sampled_from(sorted(self.model)), min_size=1, unique=True))
        qos = self.model[seqs[0]][0]
        wanted = SENT if qos == 1 else RECEIVED
        seqs = [one for one in seqs if self.model[one][::2] == (qos, wanted)]
        if not seqs:
            return
        ids = [packet_id_of(seq) for seq in seqs]
        assert self.outbox.settle(ids, qos) == len(seqs)
        assert self.outbox.settle(ids, qos) == 0, "said twice"
        for seq in seqs:
            del self.model[seq]

    @precondition(lambda self: self.model)
    @rule(count=st.integers(1, 20))
    def settle_in_order(self, count: int) -> None:
        seqs = []
        for seq in sorted(self.model)[:count]:
            if self.model[seq][0] != 1:
                break
            seqs.append(seq)
        if seqs:
            assert self.outbox.settle([packet_id_of(seq) for seq in seqs], 1) == len(seqs)
        for seq in seqs:
            del self.model[seq]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), code=st.sampled_from([0, 0x10, 0x80, 0x97]))
    def receive(self, data: st.DataObject, code: int) -> None:
        seq = data.draw(st.sampled_from(sorted(self.model)))
        qos, offset, _ = self.model[seq]
        packet_id = packet_id_of(seq)
        if qos == 1:
            with pytest.raises(MqttError):
                self.outbox.receive([packet_id], None)
            return
        release, unknown = self.outbox.receive([packet_id], [code])
        assert unknown == []
        assert release == ([packet_id] if code < 0x80 else [])
        if code < 0x80:
            self.model[seq] = (qos, offset, RECEIVED)
        else:
            del self.model[seq]

    @rule(start=st.integers(0, 40), count=st.integers(0, 10))
    def drop(self, start: int, count: int) -> None:
        first = self.outbox.base - 5 + start
        self.outbox.drop(first, count)
        for seq in range(first, first + count):
            self.model.pop(seq, None)

    @rule(window=st.integers(1, 100))
    def reconnect(self, window: int) -> None:
        self.outbox.window = window

    @rule()
    def keep(self) -> None:
        self.outbox.kept(self.outbox.write())

    @rule(lost=st.booleans())
    def restart(self, lost: bool) -> None:  # noqa: FBT001 - hypothesis draws it
        """Restore from what is journaled; sometimes the first run's journal is lost."""
        old = self.outbox
        kept = list(old.inflight)
        if lost and kept:
            gone = kept.pop(0)
            for seq in range(gone.first_seq, gone.first_seq + gone.length):
                self.model.pop(seq, None)
        new = Outbox(old.window, next_seq=old.base)
        new.next_seq = old.next_seq
        for first, last in old.done:
            new.done.add(first, last)
        new.received = set(old.received)
        for run in kept:
            new.restore(run)
        new.restored()
        self.outbox = new

    @rule(start=st.integers(-2, 30), length=st.integers(0, 40), count_max=st.integers(1, 20))
    def look_for_what_is_due(self, start: int, length: int, count_max: int) -> None:
        begin = self.outbox.base + start
        end = max(min(begin + length, self.next_seq), begin)
        due = [
            seq
            for seq, (_, _, state) in sorted(self.model.items())
            if begin <= seq < end and state == SENT
        ]
        found = self.outbox.next_due(begin, end, count_max)
        if not due:
            assert found == (end, end)
            return
        row = [seq for at, seq in enumerate(due) if seq == due[0] + at]
        assert list(range(*found)) == row[:count_max]
        sent = [one for one in self.outbox.unsettled(begin) if not one.is_received]
        assert sent[0].inflight.first_seq + sent[0].start == due[0]

    @invariant()
    def agrees(self) -> None:
        outbox = self.outbox
        assert outbox.count == len(self.model)
        assert outbox.next_seq == self.next_seq
        assert outbox.base == min(self.model, default=self.next_seq)
        assert outbox.room <= outbox.window - len(self.model)
        assert outbox.kept_base <= outbox.base
        assert outbox.next_seq - outbox.kept_base + max(outbox.room, 0) <= PACKET_ID_MAX
        found = {}
        for unsettled in outbox.unsettled():
            for at in range(unsettled.start, unsettled.stop):
                state = RECEIVED if unsettled.is_received else SENT
                run = unsettled.inflight
                found[run.first_seq + at] = (run.qos, run.first_offset + at, state)
        assert found == self.model
        assert list(found) == sorted(found), "in the order in which it left"


TestOutbox = OutboxMachine.TestCase
TestOutbox.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


def test_identifiers_are_1_to_65535_in_turn() -> None:  # MQTT-2.2.1-3
    assert [packet_id_of(seq) for seq in (0, 65_533, 65_534, 65_535)] == [1, 65_534, 65_535, 1]


def test_the_window_never_holds_an_identifier_twice() -> None:  # MQTT-2.2.1-3
    outbox = Outbox(PACKET_ID_MAX)
    outbox.push(PACKET_ID_MAX, 1, partition_id=1, first_offset=0)
    assert outbox.room == 0
    outbox.settle([2], 1)  # the first is still on its way: its neighbours may not come again
    assert outbox.room == 0
    outbox.settle([1], 1)
    assert outbox.room == 0, "a restart may bring them back"
    outbox.kept(outbox.base)
    assert outbox.room == 2


def test_one_that_is_held_back_leaves_one_range_of_settled_ones() -> None:
    outbox = Outbox(PACKET_ID_MAX)
    outbox.push(PACKET_ID_MAX, 2, partition_id=1, first_offset=0)
    others = list(range(2, PACKET_ID_MAX + 1))
    outbox.receive(others, None)
    assert outbox.settle(others, 2) == PACKET_ID_MAX - 1
    assert list(outbox.done) == [(1, PACKET_ID_MAX - 1)]
    assert (outbox.count, outbox.base) == (1, 0)
    outbox.receive([1], None)
    outbox.settle([1], 2)
    assert (list(outbox.done), outbox.base) == ([], PACKET_ID_MAX)


def test_puback_for_qos_2_is_a_protocol_error() -> None:  # MQTT-4.3.3-4
    outbox = Outbox()
    outbox.push(1, 2, partition_id=1, first_offset=0)
    with pytest.raises(MqttError) as raised:
        outbox.settle([1], 1)
    assert raised.value.reason_code is ReasonCode.PROTOCOL_ERROR


def test_pubcomp_before_pubrec_is_a_protocol_error() -> None:  # MQTT-4.3.3-5
    outbox = Outbox()
    outbox.push(1, 2, partition_id=1, first_offset=0)
    with pytest.raises(MqttError):
        outbox.settle([1], 2)


def test_pubrec_for_nothing_is_told_apart() -> None:  # MQTT 5.0 section 3.6.2.1
    assert Outbox().receive([7], None) == ([], [7])
