"""The lane against the plain model: any order of calls, and a crash at any moment."""

from copy import deepcopy

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from features.fairness import Fairness
from features.queue.lane import Lane
from features.queue.model import (
    AT_ONCE,
    BY_TIME,
    Effects,
    Order,
    Result,
    RetryOn,
)
from features.queue.retrying import DeliveryEnd
from tests.features.queue.lane_model import (
    AHEAD,
    BACK,
    DONE,
    DYING,
    FLIGHT,
    Message,
)
from tests.features.queue.lane_takes import PLACES, LaneTakes


class LaneMachine(LaneTakes):
    """Rules of single messages, moves, holders, time and crashes."""

    @precondition(lambda self: self.ids)
    @rule(places=PLACES, is_refused=st.booleans())
    def ack(self, places: list[int], *, is_refused: bool) -> None:
        ids = self.pick(places)
        before = deepcopy(self.model.messages)
        expected, done = self.model.ack(ids)
        results, effects = self.lane.ack(ids, now=self.now)
        assert results == expected
        if not is_refused:
            self.keep(effects, done)
            return
        if any(before[message.offset].state == AHEAD for message in done):
            self.keep(effects, done)  # of a lost take: nothing to go back to
            return
        for message in done:
            self.model.messages[message.offset].__dict__.update(before[message.offset].__dict__)
            back = self.model.messages[message.offset]
            if back.state == BACK:
                back.due_unix_ms = AT_ONCE
        pairs = zip(ids, results, strict=True)
        self.lane.put_back([one for one, result in pairs if result is Result.DONE])

    @precondition(lambda self: self.ids)
    @rule(
        places=PLACES,
        delay_ms=st.sampled_from([0, 0, 30]),
        ending=st.sampled_from([*DeliveryEnd, DeliveryEnd.FAILED]),
    )
    def release(self, places: list[int], delay_ms: int, ending: DeliveryEnd) -> None:
        ids = self.pick(places)
        due_unix_ms = self.now + delay_ms if delay_ms else AT_ONCE
        expected: list[Result] = []
        changed: list[Message] = []
        found: set[int] = set()
        for offset, attempt in ids:
            message, result = self.model.find(offset, attempt)
            if message is not None and offset in found:
                result = Result.STALE
            elif message is not None:
                changed.append(message)
                found.add(offset)
            expected.append(result)
        returned = [
            message
            for message in changed
            if self.model.requeue(message, self.now, ending, due_unix_ms=due_unix_ms)
        ]
        results, effects = self.lane.release(
            ids, delay_ms=delay_ms, now=self.now, ending=ending
        )
        assert results == expected
        self.keep(effects, returned)

    @precondition(lambda self: self.ids)
    @rule(places=PLACES)
    def reject(self, places: list[int]) -> None:
        ids = self.pick(places)
        expected: list[Result] = []
        for offset, attempt in ids:
            message, result = self.model.find(offset, attempt)
            if message is not None:
                message.state = DYING
                message.reason = "bad"
                message.due_unix_ms = AT_ONCE
            expected.append(result)
        results, effects = self.lane.reject(ids, reason="bad", now=self.now)
        assert results == expected
        assert all(dead.reason == "bad" for dead in effects.dead)
        self.keep(effects, [])

    @rule(places=PLACES)
    def reject_ready(self, places: list[int]) -> None:
        offsets = {place % self.model.end_offset for place in places}
        returned = self.lane.returned(2)
        assert set(returned) <= {
            one.offset for one in self.model.of_state(BACK) if one.due_unix_ms == AT_ONCE
        }
        offsets |= set(returned)
        dead, fresh = self.model.reject_ready(offsets, self.now)
        effects = self.lane.reject_ready(offsets, reason="late", now=self.now)
        assert [(one.offset, one.reason) for one in effects.dead] == [
            (offset, "late") for offset in dead
        ]
        for message in fresh:
            message.state = BACK  # as the journal has it: a lost move lets it wait again
        self.keep(effects, fresh, may_be_lost=True)
        for message in fresh:
            message.state = DYING

    @precondition(lambda self: self.ids)
    @rule(
        places=PLACES,
        spans=st.lists(st.sampled_from([0, 5, 300]), min_size=4, max_size=4),
        latest_only=st.booleans(),
    )
    def extend(self, places: list[int], spans: list[int], *, latest_only: bool) -> None:
        latest_only = latest_only or self.policy.order is Order.KEY
        ids = self.pick(places)
        expected: list[Result] = []
        wanted: dict[int, int] = {}
        for (offset, attempt), span_ms in zip(ids, spans, strict=False):
            message, result = self.model.find(offset, attempt, latest_only=latest_only)
            expected.append(result)
            if message is not None:
                wanted[offset] = span_ms
        changed: list[Message] = []
        taken_again: list[Message] = []
        backs = [at for at in wanted if self.model.messages[at].state == BACK]
        flights = [at for at in wanted if at not in backs]
        for offset in flights + backs:
            message, span_ms = self.model.messages[offset], wanted[offset]
            if message.state == BACK:
                if span_ms and self.model.has_room:
                    message.state = FLIGHT
                    message.spared = min(message.spared, max(message.attempts - 1, 0))
                    message.holder = BY_TIME
                    message.due_unix_ms = self.now + span_ms
                    taken_again.append(message)
            elif span_ms:
                message.due_unix_ms = self.now + span_ms
                changed.append(message)
            elif self.model.requeue(message, self.now):
                changed.append(message)
        results, effects = self.lane.extend(
            ids, lease_ms=spans[: len(ids)], now=self.now, latest_only=latest_only
        )
        assert results == expected
        self.keep(effects, changed + taken_again)

    @precondition(lambda self: self.moving)
    @rule(places=PLACES, is_kept=st.booleans())
    def end_move(self, places: list[int], *, is_kept: bool) -> None:
        moving = sorted(self.moving)
        offsets = list({moving[place % len(moving)] for place in places})
        self.moving -= set(offsets)
        dying = [
            message
            for offset in offsets
            if (message := self.model.messages[offset]).state == DYING
        ]
        if is_kept:
            for message in dying:
                message.state = DONE
            self.keep(Effects(self.lane.moved(offsets)), dying)
        else:
            for message in dying:
                message.due_unix_ms = self.now + 20
            self.lane.move_failed(offsets, now=self.now, retry_ms=20)

    # Time, holders, owners.

    @rule(span_ms=st.sampled_from([0, 1, 20, 50, 200, 1_000]), messages_max=st.integers(1, 20))
    def tick(self, span_ms: int, messages_max: int) -> None:
        self.now += span_ms
        expected = self.model.tick(self.now)
        dead: list[int] = []
        for _ in range(1_000):
            effects = self.lane.tick(self.now, messages_max=messages_max)
            dead += [message.offset for message in effects.dead]
            self.keep(effects, [])
            due_unix_ms = self.lane.next_due_unix_ms
            if due_unix_ms is None or due_unix_ms > self.now:
                break
        assert sorted(dead) == sorted(expected)

    @rule(holder=st.sampled_from([7, 8]))
    def end_holder(self, holder: int) -> None:
        returned = [
            message
            for message in self.model.of_state(FLIGHT)
            if message.holder == holder and self.model.requeue(message, self.now)
        ]
        effects = self.lane.end_holder(holder, self.now)
        self.keep(effects, returned if self.policy.retry_delay_ms else [])

    @rule(
        attempts_max=st.sampled_from([0, 1, 2, 3]),
        delivery_limit=st.sampled_from([-1, -1, 0, 1, 2]),
        retry_delay_ms=st.sampled_from([0, 0, 20, 60]),
        retry_delay_on=st.sampled_from(RetryOn),
    )
    def change_policy(
        self,
        attempts_max: int,
        delivery_limit: int,
        retry_delay_ms: int,
        retry_delay_on: RetryOn,
    ) -> None:
        self.policy = self.policy._replace(
            attempts_max=attempts_max,
            delivery_limit=delivery_limit,
            retry_delay_ms=retry_delay_ms,
            retry_delay_on=retry_delay_on,
        )
        self.model.attempts_max = attempts_max
        self.model.delivery_limit = delivery_limit
        self.model.retry_delay_ms = retry_delay_ms
        self.model.retry_delay_on = retry_delay_on
        self.lane.policy = self.policy

    @rule(share=st.integers(0, 10))
    def purge(self, share: int) -> None:
        end_offset = self.model.end_offset * share // 10
        gone = [
            message
            for message in self.model.messages.values()
            if message.offset < end_offset and message.state != DONE
        ]
        for message in gone:
            message.state = DONE
        self.moving -= {message.offset for message in gone}
        effects = self.lane.purge(end_offset)
        self.model.fed_end = max(self.model.fed_end, end_offset)
        self.keep(effects, gone)

    @rule(share=st.integers(0, 10))
    def expire_before(self, share: int) -> None:
        offset = self.model.end_offset * share // 10
        waiting = self.model.of_state(AHEAD, BACK)
        waiting += [one for one in self.model.of_state(DYING) if one.due_unix_ms != AT_ONCE]
        gone = [message for message in waiting if message.offset < offset]
        for message in gone:
            message.state = DONE
        effects = self.lane.expire_before(offset)
        self.model.fed_end = max(self.model.fed_end, offset)
        self.keep(effects, gone)

    # The journal.

    @rule()
    def snapshot(self) -> None:
        self.journal = [(self.lane.snapshot(), False)]
        for message in self.model.messages.values():
            message.kept = []
        self.model.entry_count = 0
        self.model.keep(list(self.model.messages.values()))
        for message in self.model.of_state(DYING):
            said = message.kept[-1][1]
            said.state, said.due_unix_ms = BACK, AT_ONCE

    @rule(is_suffix_lost=st.booleans(), snapshot_first=st.booleans())
    def crash(self, *, is_suffix_lost: bool, snapshot_first: bool) -> None:
        while is_suffix_lost and self.journal and self.journal[-1][1]:
            self.journal.pop()
        self.fairness = Fairness()
        self.lane = Lane(self.policy, 0, fairness=self.fairness)
        for entry, _ in self.journal:
            self.lane.apply(entry)
        if (
            snapshot_first
        ):  # of a lane that has just been loaded, as when a journal is rewritten
            self.fairness = Fairness()
            again = Lane(self.policy, 0, fairness=self.fairness)
            again.apply(self.lane.snapshot())
            self.lane = again
        self.model.crash(len(self.journal))
        returned = [
            message
            for message in self.model.of_state(FLIGHT)
            if message.holder != BY_TIME and self.model.requeue(message, self.now)
        ]
        effects = self.lane.recovered(self.now)
        self.moving = set()
        self.keep(effects, returned if self.policy.retry_delay_ms else [])
        assert self.moving == {message.offset for message in self.model.of_state(DYING)}
        self.model.fed_end = self.lane.fed_end

    # What holds at any moment.

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        if not hasattr(self, "lane"):
            return
        counts = self.lane.counts(self.model.end_offset)
        expected = self.model.counts()
        assert counts[1:] == expected[1:]
        if self.model.fed_end >= self.model.end_offset:
            assert counts.ready == expected.ready
        else:  # holes that nobody has seen yet are counted
            assert counts.ready >= expected.ready
        assert self.lane.open_count == len(self.model.open)

    @invariant()
    def nothing_that_is_needed_lies_below_the_floor(self) -> None:
        if not hasattr(self, "lane"):
            return
        assert self.lane.fed_end == self.model.fed_end
        needed = [message.offset for message in self.model.of_state(AHEAD, FLIGHT, BACK, DYING)]
        lowest = min(needed, default=self.model.fed_end)
        assert self.lane.floor <= lowest
        assert self.lane.next_offset <= self.lane.fed_end
        if self.model.fed_end >= self.model.end_offset:
            assert self.lane.floor == lowest

    @invariant()
    def next_due_is_the_earliest(self) -> None:
        if not hasattr(self, "lane"):
            return
        times = [
            message.due_unix_ms
            for message in self.model.open
            if message.state == FLIGHT or message.due_unix_ms != AT_ONCE
        ]
        times += [
            message.visible_unix_ms
            for message in self.model.of_state(AHEAD)
            if message.is_delayed and message.offset < self.model.fed_end
        ]
        assert self.lane.next_due_unix_ms == min(times, default=None)

    @invariant()
    def fairness_knows_what_is_in_flight(self) -> None:
        if not hasattr(self, "lane"):
            return
        is_fair = self.policy.order is Order.FAIR
        in_flight = len(self.model.of_state(FLIGHT)) if is_fair else 0
        assert self.fairness._in_flight_count == in_flight

    def teardown(self) -> None:
        """Take every open message once; then the lane is empty."""
        if not hasattr(self, "lane"):
            return
        self.change_policy(0, -1, 0, RetryOn.ALL)
        for _ in range(100 + len(self.model.messages)):  # in each round one goes at least
            self.feed(1_000)
            self.tick(100_000, 50)
            if offsets := sorted(self.moving):
                self.moving.clear()
                for offset in offsets:
                    self.model.messages[offset].state = DONE
                self.lane.moved(offsets)
            begin = len(self.ids)
            self.take(10, BY_TIME, 1_000_000, quiet_only=False)
            ids = self.ids[begin:]
            results, _ = self.lane.ack(ids)
            self.model.ack(ids)
            assert set(results) <= {Result.DONE}
            if not self.model.of_state(AHEAD, FLIGHT, BACK, DYING):
                break
        assert not self.model.of_state(AHEAD, FLIGHT, BACK, DYING)
        assert self.lane.floor == self.lane.next_offset == self.lane.fed_end
        assert self.lane.open_count == 0
        assert self.lane.next_due_unix_ms is None
