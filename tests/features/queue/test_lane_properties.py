"""The lane against the plain model, in any order of calls, with crashes at any moment."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings

from features.queue.model import BY_TIME, Order, RetryOn
from features.queue.retrying import DeliveryEnd
from tests.features.queue.lane_machine import LaneMachine
from tests.support.examples import examples

STEPS = 250

TestLane = LaneMachine.TestCase
TestLane.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)


class Walk:
    """A long way through the machine's rules, for what only comes after many of them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = LaneMachine()
        self.machine.start(
            self.random.choice(list(Order)), self.random.choice([2, 5, 12, 40]), self.runs()
        )

    def runs(self) -> list[tuple[bytes | None, int, int]]:
        choose = self.random.choice
        return [
            (
                choose([None, b"a", b"a", b"b", b"c"]),
                choose([1, 1, 4]),
                choose([0, 0, 0, 50, 400]),
            )
            for _ in range(self.random.randrange(5))
        ]

    def places(self) -> list[int]:
        """Return places of ids, mostly of late ones."""
        count = len(self.machine.ids)
        low = 0 if self.random.random() < 0.2 else max(count - 12, 0)
        return [self.random.randrange(low, count) for _ in range(self.random.randrange(1, 5))]

    def offsets(self) -> list[int]:
        """Return offsets, mostly of what went a short while ago or is about to go."""
        low, end = self.machine.lane.next_offset - 12, self.machine.model.end_offset
        low = max(low, 0) if self.random.random() < 0.8 else 0
        return [self.random.randrange(low, end) for _ in range(self.random.randrange(1, 5))]

    def spans(self) -> list[int]:
        return [self.random.choice([0, 5, 300]) for _ in range(4)]

    def move(self, *, is_kept: bool) -> None:
        if self.machine.moving:
            self.machine.end_move([self.random.randrange(100)], is_kept=is_kept)

    def actions(self) -> list[tuple[float, Callable[[], None]]]:
        """Return what may be done next, and how often it is to be."""
        machine = self.machine
        choose = self.random.choice
        below = self.random.randrange
        flag = self.random.random() < 0.3
        rarely = self.random.random() < 0.1
        holder = choose([BY_TIME, BY_TIME, 7, 8])
        lease_ms = choose([1, 100, 500])
        return [
            (6, lambda: machine.append(self.runs(), hole=flag)),
            (8, lambda: machine.feed(below(1, 30))),
            (
                16,
                lambda: machine.take(
                    below(1, 8), holder, lease_ms, quiet_only=flag, dead_max=choose([1, 256])
                ),
            ),
            (3, lambda: machine.take_selected(self.offsets(), holder, lease_ms)),
            (1, lambda: machine.look(below(4), below(1, 9))),
            (10, lambda: machine.ack(self.places(), is_refused=rarely)),
            (
                6,
                lambda: machine.release(
                    self.places(),
                    choose([0, 0, 30]),
                    choose([*DeliveryEnd, DeliveryEnd.FAILED]),
                ),
            ),
            (2, lambda: machine.reject(self.places())),
            (1, lambda: machine.reject_ready(self.offsets())),
            (6, lambda: machine.extend(self.places(), self.spans(), latest_only=flag)),
            (3, lambda: self.move(is_kept=not flag)),
            (10, lambda: machine.tick(choose([0, 1, 20, 50, 200, 1_000]), below(1, 20))),
            (1, lambda: machine.end_holder(choose([7, 8]))),
            (
                0.6,
                lambda: machine.change_policy(
                    below(4),
                    choose([-1, -1, 0, 1, 2]),
                    choose([0, 0, 20, 60]),
                    choose([*RetryOn]),
                ),
            ),
            (0.2, lambda: machine.purge(below(11))),
            (0.5, lambda: machine.expire_before(below(11))),
            (1, machine.snapshot),
            (2, lambda: machine.crash(is_suffix_lost=not rarely, snapshot_first=flag)),
        ]

    def step(self) -> None:
        weights, actions = zip(*self.actions(), strict=True)
        self.random.choices(actions, weights)[0]()
        self.machine.counts_are_those_of_the_model()
        self.machine.nothing_that_is_needed_lies_below_the_floor()
        self.machine.next_due_is_the_earliest()
        self.machine.fairness_knows_what_is_in_flight()


@pytest.mark.parametrize("seed", range(40))
def test_long_walks_agree_with_the_model(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    walk.machine.teardown()
