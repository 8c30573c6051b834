"""Transfers between shards against a plain model: any interleaving, loss, doubles and restarts.

The world is small: one source shard, two targets, nodes that crash or lose a shard to a next epoch.
A log is a list of appends, each all or nothing; what is not yet durable goes with a crash.
"""

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from features.transfer import Effect, Incoming, Intent, Item, Outgoing, Part, Verdict

TARGETS = (1, 2)
SOURCE = 0


class Log:
    """Log of a shard: appends in order, of which the first ``durable`` would survive a crash."""

    def __init__(self) -> None:
        self.appends: list[tuple[list[Item], list[bytes]]] = []
        self.durable = 0
        self.is_live = True

    def append(self, items: list[Item], records: list[bytes]) -> int:
        self.appends.append((items, records))
        return len(self.appends)

    def crash(self) -> None:
        del self.appends[self.durable :]

    @property
    def values(self) -> Mapping[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for items, _ in self.appends:
            for key, value in items:
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = value
        return found

    def records(self, *, durable: bool = False) -> list[bytes]:
        end = self.durable if durable else len(self.appends)
        return [one for _, records in self.appends[:end] for one in records]


class TransferMachine(RuleBasedStateMachine):
    """Operations of one publisher through the source shard; each has a record per target."""

    frames = Bundle("frames")

    def __init__(self) -> None:
        super().__init__()
        self.logs = {shard: Log() for shard in (SOURCE, *TARGETS)}
        self.epochs = dict.fromkeys(self.logs, 1)
        self.outgoing = Outgoing()
        self.incoming = {target: Incoming() for target in TARGETS}
        self.unsure: list[tuple[int, Intent]] = []
        self.pending: dict[int, list[tuple[int, int]]] = {target: [] for target in TARGETS}
        self.count = 0
        self.accepted: dict[int, list[bytes]] = {target: [] for target in TARGETS}
        self.answers: list[tuple[int, int, int]] = []

    # --- the source

    @rule(to=st.sets(st.sampled_from(TARGETS), min_size=1))
    def publish(self, to: set[int]) -> None:
        self.count += 1
        record = b"%d" % self.count
        effects = [Effect(target, record) for target in sorted(to)]
        intent, items = self.outgoing.begin(effects)
        end = self.logs[SOURCE].append(items, [])
        self.unsure.append((end, intent))

    @rule()
    def publish_in_vain(self) -> None:
        """The storage refuses the append at once."""
        intent, _ = self.outgoing.begin([Effect(target, b"refused") for target in TARGETS])
        self.outgoing.undo(intent)

    @rule()
    def keep_source(self) -> None:
        log = self.logs[SOURCE]
        log.durable = len(log.appends)
        for _, intent in self.unsure:
            self.outgoing.kept(intent)
            for part in intent.parts:
                self.accepted[part.target].append(part.payload)
        self.unsure.clear()

    @rule(target=frames, at=st.integers(0, 3), to=st.sampled_from(TARGETS))
    def send(self, at: int, to: int) -> tuple[int, Part] | None:
        """Send any open part, once more: it may be of an epoch that ends before it comes."""
        parts = self.outgoing.to_send(to, count_max=4)
        return (self.epochs[SOURCE], parts[min(at, len(parts) - 1)]) if parts else None

    @rule(at=st.integers(0, 20))
    def take_answer(self, at: int) -> None:
        if not self.answers:
            return
        epoch, target, number = self.answers[at % len(self.answers)]
        if epoch == self.epochs[SOURCE]:  # another owner has not asked
            items = self.outgoing.answered(target, number)
            if items:
                self.logs[SOURCE].append(items, [])

    @rule()
    def restart_source(self) -> None:
        """Kill the source's owner; the next one has what was durable."""
        self.logs[SOURCE].crash()
        self.epochs[SOURCE] += 1
        self.unsure.clear()
        self.outgoing = Outgoing(self.logs[SOURCE].values)

    # --- a target

    @rule(frame=frames, has_heard=st.booleans())
    def receive(self, frame: tuple[int, Part] | None, *, has_heard: bool = True) -> None:
        """Receive a frame that stays on its way: it may come again.

        The target may not have heard yet that the source has another owner.
        """
        if frame is None:
            return
        epoch, part = frame
        incoming, log = self.incoming[part.target], self.logs[part.target]
        known = self.epochs[SOURCE] if has_heard else 0
        verdict = incoming.judge(SOURCE, epoch, part.number, epoch_known=known)
        if epoch < known:
            assert verdict is Verdict.ZOMBIE
        if verdict is Verdict.APPLY:
            items = incoming.begin(SOURCE, part.number)
            log.append(items, [part.payload] if log.is_live else [])
            self.pending[part.target].append((epoch, part.number))
        elif verdict is Verdict.APPLIED:
            self.answers.append((epoch, part.target, part.number))

    @rule(frame=consumes(frames))
    def lose(self, frame: tuple[int, Part] | None) -> None:
        del frame

    @rule(to=st.sampled_from(TARGETS))
    def keep_target(self, to: int) -> None:
        log = self.logs[to]
        log.durable = len(log.appends)
        for epoch, number in self.pending[to]:
            self.incoming[to].kept(SOURCE, number)
            self.answers.append((epoch, to, number))
        self.pending[to].clear()

    @rule(to=st.sampled_from(TARGETS))
    def restart_target(self, to: int) -> None:
        self.logs[to].crash()
        self.pending[to].clear()
        self.incoming[to] = Incoming(self.logs[to].values)

    @rule()
    def delete_topic(self) -> None:
        """Delete the topic of the last target, amid whatever is under way."""
        self.logs[TARGETS[-1]].is_live = False

    # --- what holds

    @invariant()
    def nothing_is_twice_out_of_order_or_not_accepted(self) -> None:
        for target in TARGETS:
            records = self.logs[target].records()
            accepted = self.accepted[target]
            assert records == accepted[: len(records)]

    @invariant()
    def what_has_ended_is_durable(self) -> None:
        open_targets = self.outgoing.open_targets
        for target in TARGETS:
            if self.logs[target].is_live and target not in open_targets:
                assert self.logs[target].records(durable=True) == self.accepted[target]

    def teardown(self) -> None:
        """Let everything come to its end: each accepted record is there, once."""
        self.keep_source()
        self.restart_source()
        for target in TARGETS:
            for part in self.outgoing.to_send(target, count_max=1_000):
                self.receive((self.epochs[SOURCE], part))
                self.keep_target(target)
                items = self.outgoing.answered(target, part.number)
                self.logs[SOURCE].append(items, [])
            assert not self.outgoing.is_open(target), "an intent has no end"
            if self.logs[target].is_live:
                assert self.logs[target].records() == self.accepted[target]
        assert self.outgoing.size_bytes == 0
        left = [key for key in self.logs[SOURCE].values if key[:1] == b"i"]
        assert left == []


TransferMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestTransfers = TransferMachine.TestCase


def test_a_direct_append_waits_while_a_transfer_to_its_target_is_open() -> None:
    outgoing = Outgoing()
    intent, _ = outgoing.begin([Effect(1, b"x")])
    assert (outgoing.is_open(1), outgoing.is_open(2)) == (True, False)
    assert outgoing.to_send(1, count_max=9) == []
    outgoing.kept(intent)
    assert outgoing.to_send(1, count_max=9) == [Part(1, 1, b"x")]
    outgoing.answered(1, 1)
    assert not outgoing.is_open(1)


def test_numbers_go_on_after_all_intents_have_ended() -> None:
    outgoing = Outgoing()
    values: dict[bytes, bytes] = {}
    intent, items = outgoing.begin([Effect(1, b"x")])
    outgoing.kept(intent)
    items += outgoing.answered(1, 1)
    for key, value in items:
        if value is None:
            del values[key]
        else:
            values[key] = value
    again = Outgoing(values)
    assert not again.is_open(1)
    assert again.begin([Effect(1, b"y")])[0].parts == [Part(1, 2, b"y")]


def test_a_part_of_an_earlier_epoch_is_refused() -> None:
    incoming = Incoming()
    assert incoming.judge(0, 6, 1) is Verdict.APPLY
    incoming.begin(0, 1)
    assert incoming.judge(0, 5, 2) is Verdict.ZOMBIE
    assert incoming.judge(0, 6, 1) is Verdict.PENDING
    incoming.kept(0, 1)
    assert incoming.judge(0, 6, 1) is Verdict.APPLIED
    assert incoming.judge(0, 6, 3) is Verdict.EARLY
    assert incoming.judge(0, 6, 2, epoch_known=7) is Verdict.ZOMBIE


def test_an_intent_ends_when_all_of_its_targets_have_answered() -> None:
    outgoing = Outgoing()
    intent, _ = outgoing.begin([Effect(1, b"x"), Effect(2, b"yy")])
    outgoing.kept(intent)
    assert outgoing.answered(1, 1) == []
    assert outgoing.size_bytes == 3
    [(_, ended)] = outgoing.answered(2, 1)
    assert ended is None
    assert (outgoing.size_bytes, outgoing.open_targets) == (0, [])
