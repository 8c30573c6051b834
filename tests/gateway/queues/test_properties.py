"""A queue on the real log against a plain model, in any order of what can happen to it."""

import asyncio
import tempfile
from pathlib import Path

import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from features.queue.model import Result
from gateway.queues.manager import Queue
from gateway.queues.model import Delivery, Outcome
from tests.gateway.kernel_in_memory import outcome
from tests.gateway.queues.queue_node import World, extend, is_fed, settle, take
from tests.support.examples import examples

LEASE_MS = 10_000
KEYS = (b"a", b"b", b"c")
ATTEMPTS_MAX = 2


class Message:
    """One message of the model: its place, its deliveries, and the end of its lease."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.attempts = 0
        self.out_until_ms: int | None = None
        self.hidden_until_ms = 0
        self.delivery: Delivery | None = None


class QueueMachine(RuleBasedStateMachine):
    """``live`` messages are in the queue, ``dead`` ones in the dead letters.

    One that was handed out as often as it may be lives until somebody asks for it once more.
    """

    order = "none"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.world = World(Path(self.folder.name), journal_room_bytes=1 << 20)
        self.live: dict[bytes, Message] = {}
        self.dead: set[bytes] = set()
        self.sent = 0

    @initialize(partitions=st.sampled_from([1, 2]))
    def begin(self, partitions: int) -> None:
        self.runner.run(self._begin(partitions))

    async def _begin(self, partitions: int) -> None:
        await self.world.open()
        await self.world.queue("dead")
        await self.world.queue(
            partitions=partitions,
            lease_ms=LEASE_MS,
            attempts_max=ATTEMPTS_MAX,
            dead_letter_topic="dead",
            order=self.order,
        )

    @property
    def queue(self) -> Queue:
        return self.world.find()

    @property
    def now(self) -> int:
        return self.world.clock.monotonic_ms()

    # --- what happens

    @rule(count=st.integers(1, 5), key=st.sampled_from(KEYS))
    def send(self, count: int, key: bytes) -> None:
        names = [b"%d" % (self.sent + n) for n in range(count)]
        self.sent += count
        self.runner.run(self.world.send(self.queue, *names, key=key))
        self.live.update((name, Message(key)) for name in names)

    @rule(count=st.integers(1, 6))
    def receive(self, count: int) -> None:
        got = self.runner.run(take(self.queue, count))
        for one in got:
            name = one.record.value
            assert name is not None
            message = self.live[name]
            assert message.out_until_ms is None, "it is out already"
            assert message.hidden_until_ms <= self.now
            assert message.attempts < ATTEMPTS_MAX, "it dies instead"
            message.attempts += 1
            assert one.attempt == message.attempts
            message.out_until_ms = self.now + LEASE_MS
            message.delivery = one
        self.runner.run(self._bury_spent())
        self.check_order(got)
        if not got:
            assert self.order == "key" or not self.waiting(is_spent=False)
            assert self.order == "key" or not self.waiting(is_spent=True)

    def check_order(self, got: list[Delivery]) -> None:
        """Nothing that could go stays behind what went: see the subclass for keys."""

    async def _bury_spent(self) -> None:
        """Let the model know that some or all messages without attempts left are dead now."""
        await self.world.until(lambda: self.queue.counts().in_flight == len(self.out()))
        left = {one.record.value for one in await self.queue.browse(1_000)}
        died = self.live.keys() - left
        assert died <= set(self.waiting(is_spent=True))
        self.dead |= died
        for name in died:
            del self.live[name]

    def waiting(self, *, is_spent: bool) -> list[bytes]:
        return [
            name
            for name, message in self.live.items()
            if message.out_until_ms is None
            and message.hidden_until_ms <= self.now
            and (message.attempts >= ATTEMPTS_MAX) is is_spent
        ]

    def out(self) -> list[tuple[bytes, Message]]:
        return [item for item in self.live.items() if item[1].out_until_ms is not None]

    @rule(
        indexes=st.lists(st.integers(0, 100), min_size=1, max_size=6),
        what=st.sampled_from([*Outcome, "extend", "hide"]),
    )
    def answer(self, indexes: list[int], what: Outcome | str) -> None:
        # Not drawn from what is out: which message of two partitions comes first may differ.
        out = self.out()
        if not out:
            return
        some = [out[at] for at in {index % len(out) for index in indexes}]
        deliveries = [message.delivery for _, message in some if message.delivery]
        if what == "extend":
            items = [(one.delivery_id, 3 * LEASE_MS) for one in deliveries]
            results = self.runner.run(extend(self.queue, items))
            for _, message in some:
                message.out_until_ms = self.now + 3 * LEASE_MS
        else:
            word = what if isinstance(what, Outcome) else Outcome.RELEASE
            delay_ms = LEASE_MS // 2 if what == "hide" else 0
            results = self.runner.run(settle(self.queue, deliveries, word, delay_ms=delay_ms))
            for name, message in some:
                self._end(name, message, word, delay_ms)
        assert results == [Result.DONE] * len(some)
        self._settle_down()

    def _end(self, name: bytes, message: Message, word: Outcome, delay_ms: int) -> None:
        if word is Outcome.RELEASE:
            message.out_until_ms = None
            message.hidden_until_ms = self.now + delay_ms
            return
        del self.live[name]
        if word is not Outcome.ACK:
            self.dead.add(name)

    @rule(ms=st.sampled_from([1, LEASE_MS // 2, LEASE_MS, 3 * LEASE_MS]))
    def wait(self, ms: int) -> None:
        self.runner.run(self._advance(ms))
        for name, message in self.out():
            assert message.out_until_ms is not None
            if message.out_until_ms <= self.now:
                self._end(name, message, Outcome.RELEASE, 0)
        self._settle_down()

    async def _advance(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def purge(self) -> None:
        assert self.runner.run(outcome(self.queue.purge)) is None
        self.live.clear()

    @rule()
    def restart(self) -> None:
        self.runner.run(self.world.restart())
        self._settle_down()

    def _settle_down(self) -> None:
        """Wait until the dead have moved and all is fed; then all are where they should be."""
        dead = self.world.find("dead")
        self.runner.run(
            self.world.until(
                lambda: (
                    dead.counts().ready == len(self.dead)
                    and is_fed(dead)
                    and is_fed(self.queue)
                )
            )
        )
        self.check_counts()

    def check_counts(self) -> None:
        delayed = sum(message.hidden_until_ms > self.now for message in self.live.values())
        out = len(self.out())
        assert self.queue.counts() == (len(self.live) - out - delayed, out, delayed)

    def teardown(self) -> None:
        try:
            self.runner.run(self._check_dead())
        finally:
            self.runner.run(self.world.close())
            self.runner.close()
            self.folder.cleanup()

    async def _check_dead(self) -> None:
        letters = await take(self.world.find("dead"), 1_000)
        assert sorted(one.record.value or b"" for one in letters) == sorted(self.dead)


class KeyedMachine(QueueMachine):
    """Deliver the messages of each key in order, to one receive at a time."""

    order = "key"

    def check_order(self, got: list[Delivery]) -> None:
        for one in got:
            name = one.record.value or b""
            message = self.live[name]
            before = [
                other
                for other, known in self.live.items()
                if known.key == message.key and int(other) < int(name)
            ]
            with_it = {two.record.value for two in got}
            assert all(other in with_it for other in before), "it overtook one of its key"


MACHINE = settings(
    max_examples=examples(15),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestQueue = QueueMachine.TestCase
TestQueue.settings = MACHINE
TestKeyedQueue = KeyedMachine.TestCase
TestKeyedQueue.settings = MACHINE
