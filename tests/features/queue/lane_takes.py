"""Messages that come into a lane, are taken and settled as ranges, beside the plain model."""

from collections.abc import Sequence
from copy import deepcopy

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from features.fairness import Fairness
from features.queue.delivery import each_taken
from features.queue.journal import entry_of
from features.queue.lane import Lane
from features.queue.model import (
    AT_ONCE,
    BY_TIME,
    DEAD_MAX,
    Effects,
    Order,
    Outcome,
    Policy,
    Run,
    SettledRange,
)
from features.queue.range_settling import ENDING_OF
from features.ranges import RangeSet
from tests.features.queue.lane_model import (
    AHEAD,
    BACK,
    DONE,
    DYING,
    LaneModel,
    Message,
)
from tests.features.queue.lanes import taking

KEYS = st.sampled_from([None, b"a", b"b", b"c"])
PLACES = st.lists(st.integers(0, 1_000), min_size=1, max_size=4)
RUNS = st.lists(
    st.tuples(KEYS, st.integers(1, 6), st.sampled_from([0, 0, 0, 50, 400])), max_size=4
)


class LaneTakes(RuleBasedStateMachine):
    """``journal`` has (entry, whether losing it in a crash is no broken promise)."""

    @initialize(order=st.sampled_from(list(Order)), in_flight_max=st.integers(2, 12), runs=RUNS)
    def start(
        self, order: Order, in_flight_max: int, runs: list[tuple[bytes | None, int, int]]
    ) -> None:
        self.policy = Policy(order, in_flight_max=in_flight_max, retry_delay_ms_max=100)
        self.fairness = Fairness()
        self.lane = Lane(self.policy, 0, fairness=self.fairness)
        self.model = LaneModel(order, in_flight_max)
        self.model.retry_delay_ms_max = 100
        self.now = 1_000
        self.ids: list[tuple[int, int]] = []  # all that were ever handed out
        self.moving: set[int] = set()  # dead, and nobody has said what came of the move
        self.journal: list[tuple[bytes, bool]] = []
        self.append([*runs, (b"a", 3, 0), (b"b", 2, 0), (None, 2, 0)], hole=False)
        self.feed(30)
        self.take(2, BY_TIME, 100, quiet_only=False)

    def keep(
        self, effects: Effects, changed: Sequence[Message], *, may_be_lost: bool = False
    ) -> None:
        self.moving |= {dead.offset for dead in effects.dead}
        entry = entry_of(effects)
        if entry is None:
            assert not changed
            return
        self.journal.append((entry, may_be_lost))
        self.model.keep(changed)

    def pick(self, places: list[int]) -> list[tuple[int, int]]:
        return [self.ids[place % len(self.ids)] for place in places]

    # What comes in.

    @rule(runs=RUNS, hole=st.booleans())
    def append(self, runs: list[tuple[bytes | None, int, int]], *, hole: bool) -> None:
        for key, count, delay_ms in runs:
            for _ in range(count):
                self.model.append(key, self.now + delay_ms if delay_ms else AT_ONCE)
        if hole:
            self.model.append_hole()

    @rule(count=st.integers(1, 30))
    def feed(self, count: int) -> None:
        end_offset = min(self.lane.fed_end + count, self.model.end_offset)
        messages = [
            message
            for message in self.model.messages.values()
            if self.lane.fed_end - 2 <= message.offset < end_offset
        ]
        runs: list[Run] = []
        for offset, key, visible in ((m.offset, m.key, m.visible_unix_ms) for m in messages):
            if (
                runs
                and runs[-1].last == offset - 1
                and runs[-1].key == key
                and runs[-1].visible_unix_ms == visible
            ):
                runs[-1] = runs[-1]._replace(last=offset)
            else:
                runs.append(Run(offset, offset, key, visible))
        self.keep(self.lane.feed(runs, self.now), [])
        if runs:
            self.model.feed(runs[-1].last + 1, self.now)
        assert self.lane.fed_end == self.model.fed_end

    # What goes out.

    @rule(
        count=st.integers(1, 10),
        holder=st.sampled_from([BY_TIME, BY_TIME, 7, 8]),
        lease_ms=st.sampled_from([1, 100, 500]),
        quiet_only=st.booleans(),
        dead_max=st.sampled_from([1, 2, DEAD_MAX]),
    )
    def take(
        self,
        count: int,
        holder: int,
        lease_ms: int,
        *,
        quiet_only: bool,
        dead_max: int = DEAD_MAX,
    ) -> None:
        expected, dead = self.model.take(
            count,
            holder=holder,
            lease_ms=lease_ms,
            now=self.now,
            quiet_only=quiet_only,
            fairness=self.fairness,
            dead_max=dead_max,
        )
        taken, effects = taking(
            self.lane,
            count,
            holder=holder,
            lease_ms=lease_ms,
            now=self.now,
            quiet_only=quiet_only,
            dead_max=dead_max,
        )
        assert taken == expected
        assert [message.offset for message in effects.dead] == dead
        self.keep(
            effects,
            [self.model.messages[message.offset] for message in taken],
            may_be_lost=True,
        )
        self.ids += [(message.offset, message.attempt) for message in taken]

    @rule(
        places=PLACES,
        holder=st.sampled_from([BY_TIME, 7, 8]),
        lease_ms=st.sampled_from([1, 100, 500]),
    )
    def take_selected(self, places: list[int], holder: int, lease_ms: int) -> None:
        offsets = {place % self.model.end_offset for place in places}
        offsets |= set(self.lane.returned(1))
        how = {"holder": holder, "lease_ms": lease_ms, "now": self.now}
        expected, dead = self.model.take_selected(offsets, **how)
        ranges, effects = self.lane.take_selected(offsets, **how)
        taken = each_taken(ranges)
        assert sorted(taken) == expected
        assert [message.offset for message in effects.dead] == dead
        self.keep(
            effects,
            [self.model.messages[message.offset] for message in taken],
            may_be_lost=True,
        )
        self.ids += [(message.offset, message.attempt) for message in taken]

    @rule(share=st.integers(0, 4), count=st.integers(1, 9))
    def look(self, share: int, count: int) -> None:
        passed = RangeSet()
        for offset in range(self.model.end_offset * share // 4):
            passed.add(offset, offset)
        found = [at for one in self.lane.candidates(passed, count) for at in one]
        ready = {
            one.offset
            for one in self.model.of_state(AHEAD, BACK)
            if one.due_unix_ms == AT_ONCE and not one.is_delayed
        }
        if self.policy.order is not Order.KEY:
            assert set(found) <= ready
            fed_end = self.model.fed_end
            backs = {one.offset for one in self.model.of_state(BACK)}
            known = {at for at in ready if (at < fed_end or at in backs) and at not in passed}
            assert len(set(found)) == len(found) == min(count, len(known))

    @precondition(lambda self: self.ids)
    @rule(
        places=PLACES,
        lengths=st.lists(st.integers(1, 4), min_size=4, max_size=4),
        outcomes=st.lists(st.sampled_from(Outcome), min_size=4, max_size=4),
        holder=st.sampled_from([BY_TIME, BY_TIME, 7, 8]),
        delay_ms=st.sampled_from([0, 30]),
        is_refused=st.booleans(),
    )
    def settle_ranges(
        self,
        places: list[int],
        lengths: list[int],
        outcomes: list[Outcome],
        holder: int,
        delay_ms: int,
        *,
        is_refused: bool,
    ) -> None:
        ranges = [
            SettledRange(range(offset, offset + length), attempt, outcome)
            for (offset, attempt), length, outcome in zip(
                self.pick(places), lengths, outcomes, strict=False
            )
        ]
        for one in ranges:
            mine = self.model.held(one.offsets, one.attempt, holder)
            is_whole = len(mine) == len(one.offsets)
            assert self.lane.holds(one.offsets, one.attempt, holder=holder) == is_whole
        before = deepcopy(self.model.messages)
        expected: list[int] = []
        done: list[Message] = []
        returned: list[Message] = []
        for offsets, attempt, outcome in ranges:
            mine = self.model.held(offsets, attempt, holder)
            expected.append(len(mine))
            for message in mine:
                if outcome is Outcome.ACK:
                    message.state = DONE
                    done.append(message)
                elif outcome is Outcome.REJECT:
                    message.state, message.reason, message.due_unix_ms = DYING, "bad", AT_ONCE
                else:
                    due_unix_ms = self.now + delay_ms if delay_ms else AT_ONCE
                    ending = ENDING_OF[outcome]
                    if self.model.requeue(message, self.now, ending, due_unix_ms=due_unix_ms):
                        returned.append(message)
        counts, effects = self.lane.settle_ranges(
            ranges, holder=holder, now=self.now, delay_ms=delay_ms, reason="bad"
        )
        assert counts == expected
        assert sorted(at for part in effects.done for at in part) == sorted(
            one.offset for one in done
        )
        if not is_refused or returned:
            self.keep(effects, [*done, *returned])
            return
        effects.done = []
        self.keep(effects, [])
        for message in done:
            self.model.messages[message.offset].__dict__.update(before[message.offset].__dict__)
        self.lane.put_back([(message.offset, message.attempts) for message in done])
