"""Lanes and policies with which tests begin."""

from typing import Any, Final

from features.fairness import Fairness
from features.queue.delivery import each_taken
from features.queue.journal import entry_of
from features.queue.lane import Lane
from features.queue.model import BY_TIME, Dead, Effects, Order, Policy, Run, Taken

LEASE_MS: Final = 1_000


def lane_of(
    *runs: Run, order: Order = Order.NONE, attempts_max: int = 0, in_flight_max: int = 120_000
) -> Lane:
    policy = Policy(order, attempts_max=attempts_max, in_flight_max=in_flight_max)
    lane = Lane(policy, 0, fairness=Fairness())
    lane.feed(runs, 1)
    return lane


def taking(lane: Lane, count: int, **how: Any) -> tuple[list[Taken], Effects]:
    """Take messages; return each by itself, and the effects with one journal entry."""
    ranges, effects = lane.take_ranges(count, **how)
    effects.journal = entry_of(effects)
    effects.taken = None
    return each_taken(ranges), effects


def take(
    lane: Lane, count: int, now: int = 1, *, holder: int = BY_TIME, quiet_only: bool = False
) -> list[int]:
    taken, _ = taking(
        lane, count, holder=holder, lease_ms=LEASE_MS, now=now, quiet_only=quiet_only
    )
    return [message.offset for message in taken]


def tick(lane: Lane, now: int) -> list[Dead]:
    return lane.tick(now, messages_max=1_000).dead
