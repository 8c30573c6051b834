"""The order of a key, as its receivers see it: whatever becomes of messages, none is passed."""

from random import Random

import pytest

from features.queue.lane import Lane
from features.queue.model import BY_TIME, Dead, Effects, Order, Policy, Run
from tests.features.queue.lanes import taking

KEYS = (b"a", b"b", b"c", b"d")
MESSAGES = 400
POLICY = Policy(Order.KEY, attempts_max=4)


class Receivers:
    """Take, and then do anything with what was taken; every take is looked at."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.keys = [self.random.choice(KEYS) for _ in range(MESSAGES)]
        self.lane = Lane(POLICY, 0)
        self.journal: list[bytes] = []
        self.now = 1_000
        self.done: set[int] = set()  # acknowledged, or on the way to the dead letters
        self.out: dict[int, int] = {}  # in flight: offset to attempt
        self.delivered_count = 0
        self.dead_count = 0

    def note(self, effects: Effects) -> None:
        if effects.journal is not None:
            self.journal.append(effects.journal)
        self.bury(effects.dead)

    def bury(self, dead: list[Dead]) -> None:
        offsets = [one.offset for one in dead]
        self.dead_count += len(offsets)
        self.done.update(offsets)
        self.journal.append(self.lane.moved(offsets))

    def feed(self) -> None:
        first = self.lane.fed_end
        offsets = range(first, min(first + 20, MESSAGES))
        runs = [Run(offset, offset, self.keys[offset]) for offset in offsets]
        self.note(self.lane.feed(runs, self.now))

    def take(self) -> None:
        taken, effects = taking(
            self.lane, self.random.randrange(1, 8), holder=BY_TIME, lease_ms=100, now=self.now
        )
        self.note(effects)
        for offset, attempt, _ in taken:
            is_again = attempt > 1  # it may go before later ones of its key, that are out
            key = self.keys[offset]
            before = [at for at in range(offset) if self.keys[at] == key]
            mine = {message.offset for message in taken}
            assert set(before) <= self.done | mine, f"{offset} passed one of its key"
            others = [at for at in self.out if self.keys[at] == key and at not in mine]
            assert not [at for at in others if at < offset or not is_again]
            self.out[offset] = attempt
            self.delivered_count += 1

    def settle(self) -> None:
        for offset in self.random.sample(sorted(self.out), len(self.out) // 2):
            ids = [(offset, self.out.pop(offset))]
            what = self.random.random()
            if what < 0.6:
                _, effects = self.lane.ack(ids)
                self.done.add(offset)
            elif what < 0.8:
                delay_ms = self.random.choice([0, 30])
                _, effects = self.lane.release(ids, delay_ms=delay_ms, now=self.now)
            elif what < 0.9:
                _, effects = self.lane.reject(ids, reason="rejected")
            else:
                _, effects = self.lane.extend(ids, lease_ms=[0], now=self.now)
            self.note(effects)

    def wait(self) -> None:
        self.now += self.random.choice([10, 50, 200])
        self.note(self.lane.tick(self.now, messages_max=1_000))
        states = dict(self.lane.browse(0, MESSAGES))
        self.out = {at: n for at, n in self.out.items() if states[at] == "in_flight"}

    def crash(self) -> None:
        self.lane = Lane(POLICY, 0)
        for entry in self.journal:
            self.lane.apply(entry)
        self.note(self.lane.recovered(self.now))
        states = dict(self.lane.browse(0, MESSAGES))
        assert {at for at in self.done if states[at] != "done"} == set()
        self.out = {at: n for at, n in self.out.items() if states[at] == "in_flight"}
        self.wait()


@pytest.mark.parametrize("seed", range(8))
def test_no_message_passes_another_of_its_key(seed: int) -> None:
    receivers = Receivers(seed)
    actions = (
        receivers.feed, receivers.take, receivers.take, receivers.settle, receivers.wait,
    )  # fmt: skip

    while len(receivers.done) < MESSAGES:
        receivers.random.choice(actions)()
        if receivers.random.random() < 0.02:
            receivers.crash()

    assert receivers.delivered_count > MESSAGES
    assert 0 < receivers.dead_count < MESSAGES
    assert receivers.lane.floor == MESSAGES
