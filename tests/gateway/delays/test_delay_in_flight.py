"""Delays against a plain model while appends, reads and cancellations are still on their way.

Nothing is waited for: whatever may happen happens between any two answers of the storage, and the
node may die at any of them. Every message comes once when it is due, unless it was taken out.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.clock import ManualClock
from gateway.delays.mover import RECHECK_MS, TICK_MS
from gateway.delays.pending_messages import PendingMessage as Delayed
from gateway.errors import GatewayError
from gateway.metadata.sql import SqlMetadata
from gateway.partition import Partition
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.records.runs import nullable
from gateway.storage import OnDone
from tests.gateway.delays.in_flight_model import Ending, Message, both
from tests.gateway.delays.slow_delay_node import ClockLoop, SlowWorld

AFTERS_MS = (0, 1, 40, 251, 300, 5_000, 70_000)
TO_NEXT = 0
STEPS_MS = (TO_NEXT, TO_NEXT, 1, 250, 1_000, 70_000)
COUNTS = (1, 1, 3, 8, 25)
TOPICS = ("one", "two")
TROUBLES = ("is_full", "is_away", "is_cold", "is_backed_up")
QUIET_ROUNDS = 3  # of a second each
TICKS = 10
ROUNDS_MAX = 100
AT_LAST_MS = 2 * max(AFTERS_MS)


class DelaysInFlight(RuleBasedStateMachine):
    """``messages`` are all that were ever put, by value, but those that were refused at once."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.folder = TemporaryDirectory()
        self.runner = asyncio.Runner(loop_factory=lambda: ClockLoop(self.clock))
        self.failures: list[dict[str, object]] = []
        self.messages: dict[bytes, Message] = {}
        self.seen = [0 for _ in TOPICS]
        self.last = 0

    @initialize()
    def begin(self) -> None:
        loop = self.runner.get_loop()
        assert isinstance(loop, ClockLoop)
        self.loop = loop
        self.loop.set_exception_handler(lambda _, found: self.failures.append(found))
        self.runner.run(self._begin())
        for topic in range(len(TOPICS)):
            for after_ms in AFTERS_MS[-3:]:
                self.put(topic, after_ms, count=10, way="put")
        self.answer(0)
        self.answer(1)

    async def _begin(self) -> None:
        self.metadata = SqlMetadata("sqlite", data_dir=Path(self.folder.name))
        await self.metadata.open()
        self.world = SlowWorld(self.metadata, self.clock)
        await self.world.open()
        self.topics = [await self.world.topic("one"), await self.world.topic("two")]
        await self.world.topics.alter_configs(self.topics[1].name, {"cleanup.policy": "queue"})

    def partition(self, topic: int) -> Partition:
        return self.world.partition(self.topics[topic])

    # --- what is asked for

    @rule(
        topic=st.sampled_from(range(len(TOPICS))),
        after_ms=st.sampled_from(AFTERS_MS),
        count=st.sampled_from(COUNTS),
        way=st.sampled_from(["put", "beside"]),
    )
    def put(self, topic: int, after_ms: int, count: int, way: str) -> None:
        found = self._new(topic, [after_ms] * count)
        run = RecordRun(b"k", [one.value for one in found], NO_HEADERS, self.clock.unix_ms())
        due_unix_ms = found[0].due_unix_ms
        delays, partition = self.world.delays, self.partition(topic)

        def through_others(on_done: OnDone) -> Sequence[int]:
            pending = delays.prepare_run(partition, run, due_unix_ms)
            assert pending.part is not None
            self.world.others.add(*pending.part, both(pending.done, on_done))
            return pending.numbers

        def alone(on_done: OnDone) -> Sequence[int]:
            return self.world.put_run(partition, run, due_unix_ms, on_done)

        self._put(found, alone if way == "put" else through_others)

    @rule(
        topic=st.sampled_from(range(len(TOPICS))),
        afters_ms=st.lists(st.sampled_from(AFTERS_MS), min_size=1, max_size=25),
    )
    def put_scattered(self, topic: int, afters_ms: list[int]) -> None:
        found = self._new(topic, sorted(afters_ms))
        delays, partition = self.world.delays, self.partition(topic)
        messages = [
            Delayed(one.due_unix_ms, 7, nullable(None) + nullable(one.value), NO_HEADERS)
            for one in found
        ]

        def drafted(on_done: OnDone) -> Sequence[int]:
            pending = delays.prepare(partition, messages)

            try:
                self.world.broker.append(pending.writes, both(pending.done, on_done))
            except GatewayError as error:
                pending.done(error)
                raise
            return pending.numbers

        self._put(found, drafted)

    def _new(self, topic: int, afters_ms: list[int]) -> list[Message]:
        now_unix_ms = self.clock.unix_ms()
        self.last += len(afters_ms)
        return [
            Message(b"%d" % value, topic, now_unix_ms + after_ms)
            for value, after_ms in enumerate(afters_ms, self.last - len(afters_ms))
        ]

    def _put(self, found: list[Message], start: Callable[[OnDone], Sequence[int]]) -> None:
        def done(error: GatewayError | None) -> None:
            for one in found:
                one.put_done(error)

        try:
            numbers = start(done)
        except GatewayError:
            return
        for one, number in zip(found, numbers, strict=True):
            one.number = number
            self.messages[one.value] = one

    @rule(
        places=st.lists(st.integers(0, 1_000), min_size=1, max_size=12),
        is_waiting=st.booleans(),
    )
    def cancel(self, places: list[int], *, is_waiting: bool) -> None:
        messages = [one for one in self.messages.values() if one.counts or not is_waiting]
        if not messages:
            return
        some = list({messages[-1 - place % len(messages)] for place in places})
        some.sort(key=lambda one: one.number)
        ending = Ending(is_purge=False)
        moving = [self.world.log_now.moving(self.partition(at)) for at in range(len(TOPICS))]
        expected = [
            one.counts and not one.endings and one.value not in moving[one.topic]
            for one in some
        ]
        try:
            found = self.world.delays.cancel([one.number for one in some], ending.done)
        except GatewayError:
            return
        for one, was_there, should_be in zip(some, found, expected, strict=True):
            assert was_there == should_be or one.is_either, vars(one)
            if was_there:
                one.is_either = False
                one.is_kept = True
                one.endings.append(ending)

    @rule(topic=st.sampled_from(range(len(TOPICS))))
    def purge(self, topic: int) -> None:
        ending = Ending(is_purge=True)
        moving = self.world.log_now.moving(self.partition(topic))
        some = [
            one for one in self.messages.values() if one.topic == topic and not one.has_come
        ]
        try:
            self.world.sharded.purge(self.partition(topic).topic, ending.done)
        except GatewayError:
            return
        for one in some:
            one.is_leaving |= one.value in moving
            if not one.is_leaving:
                one.is_either |= one.is_kept is None
                one.endings.append(ending)

    # --- what happens

    @rule(count=st.sampled_from([0, 0, 1, 2, 1_000]))
    def answer(self, count: int) -> None:
        self.loop.call_soon(self.world.log_now.answer, count)
        self.loop.turn()

    @rule(
        ms=st.sampled_from(STEPS_MS),
        is_set=st.booleans(),
        what=st.sampled_from([None, *TROUBLES]),
        turns=st.sampled_from([1, 2, 10]),
    )
    def advance(self, ms: int, turns: int, what: str | None, *, is_set: bool) -> None:
        """Time passes, or somebody sets the wall clock; amid a trouble, maybe."""
        if what is not None:
            self.trouble(what)
        if ms == TO_NEXT:
            dues = [one.due_unix_ms for one in self.messages.values() if one.counts]
            ms = max(min(dues, default=0) - self.clock.unix_ms(), 2 * TICK_MS)
        if is_set:
            self.clock.step_unix(ms)
        else:
            self.clock.advance(ms)
        for _ in range(turns):
            self.loop.turn()
        if what is not None:
            self.trouble(what)

    @rule(what=st.sampled_from(TROUBLES))
    def trouble(self, what: str) -> None:
        """Begin or end one."""
        place = self.world if what == "is_backed_up" else self.world.log_now
        setattr(place, what, not getattr(place, what))

    @rule()
    def keep_small(self) -> None:
        self.world.delays.stream.keep_small()

    @rule(how=st.sampled_from(["stop", "crash", "fault"]))
    def restart(self, how: str) -> None:
        if how == "stop":
            self.runner.run(self.world.restart())
        else:
            if how == "fault":
                self.loop.call_soon(self.world.log_now.fail)
                self.loop.turn()
            self.runner.run(self.world.crash())
        for one in self.messages.values():
            one.crashed()

    @rule()
    def settle(self) -> None:
        """All troubles end: soon all that is due has come."""
        self._settle()

    def _settle(self) -> None:
        log, delays = self.world.log_now, self.world.delays
        log.is_full = log.is_away = log.is_cold = self.world.is_backed_up = False
        quiet = 0
        for _ in range(ROUNDS_MAX):
            total = delays.total
            self.clock.advance(RECHECK_MS)
            for _ in range(TICKS):
                self.clock.advance(TICK_MS)
                self.answer(1_000)
            is_busy = delays.mover.is_busy or delays.stream.is_rewriting or not log.is_quiet
            quiet = 0 if is_busy or total != delays.total else quiet + 1
            self.look()
            if quiet == QUIET_ROUNDS:
                break
        assert quiet == QUIET_ROUNDS, "there is no end to it"
        now_unix_ms = self.clock.unix_ms()
        late = [
            vars(one)
            for one in self.messages.values()
            if one.counts and not one.is_either and one.due_unix_ms <= now_unix_ms
        ]
        assert late == []

    # --- what is looked at

    @invariant()
    def look(self) -> None:
        """Check that each message came when due and once, and that the waiting ones are counted."""
        assert self.failures == []
        for topic in range(len(TOPICS) if self.messages else 0):
            values = self.world.log_now.values(self.partition(topic))
            for value in values[self.seen[topic] :]:
                one = self.messages[value]
                assert one.topic == topic
                assert not one.has_come, "it comes twice"
                assert one.is_kept or one.is_either
                assert one.is_either or not one.is_out, "it was taken out"
                assert one.due_unix_ms <= self.clock.unix_ms(), "it comes too early"
                one.has_come = True
            self.seen[topic] = len(values)
            own = [one for one in self.messages.values() if one.topic == topic]
            sure = sum(one.counts and not one.is_either for one in own)
            maybe = sum(one.is_either and not one.has_come for one in own)
            counted = self.world.delays.count(self.topics[topic])
            assert sure <= counted <= sure + maybe, (topic, sure, counted, maybe)

    def teardown(self) -> None:
        try:
            self._settle()
            self.clock.advance(AT_LAST_MS)
            self._settle()
            self._settle()
            self._is_empty()
        finally:
            self.runner.run(self.world.close())
            self.runner.run(self.metadata.close())
            self.runner.close()
            self.folder.cleanup()

    def _is_empty(self) -> None:
        """All has come but what was taken out, everybody was told, and nothing is left."""
        for one in self.messages.values():
            assert one.is_kept is not None
            assert all(ending.is_kept is not None for ending in one.endings)
            assert one.is_either or one.has_come == (one.is_kept and not one.is_out), vars(one)
        delays = self.world.delays
        delays.stream.keep_small()
        state, staged = delays.state, delays.mover.staged
        assert (delays.total, state.live_bytes, bool(state.runs)) == (0, 0, False)
        assert (state._topics, state.lowest_offset) == ({}, None)
        assert (len(staged), staged.size_bytes, delays.bodies.size_bytes) == (0, 0, 0)
        assert (delays._counts.pending_count, delays._counts.pending_bytes) == (0, 0)
        assert delays.stream.size_bytes == 0


class DelaysInFlightForLong(DelaysInFlight):
    """The same, for a soak."""


def machine(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


TestDelaysInFlight = DelaysInFlight.TestCase
TestDelaysInFlight.settings = machine(25, 30)
TestDelaysInFlightForLong = pytest.mark.soak(DelaysInFlightForLong.TestCase)
TestDelaysInFlightForLong.settings = machine(3_000, 60)
