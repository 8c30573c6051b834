"""Names of recently deleted or purged queues."""

import pytest

from adapters.sqs.queues import recent_names
from adapters.sqs.queues.recent_names import BARRED_MS, RecentNames
from gateway.clock import ManualClock
from gateway.model import TopicName

ORDERS = TopicName("default", "orders")
JOBS = TopicName("default", "jobs")


def test_a_name_is_barred_for_60_seconds_and_no_longer() -> None:
    clock = ManualClock()
    names = RecentNames(clock)
    names.add(ORDERS)
    clock.advance(BARRED_MS - 1)
    assert ORDERS in names
    assert JOBS not in names
    clock.advance(1)
    assert ORDERS not in names


def test_a_step_of_the_wall_clock_changes_nothing() -> None:
    clock = ManualClock()
    names = RecentNames(clock)
    names.add(ORDERS)
    clock.step_unix(3_600_000)
    assert ORDERS in names


def test_a_name_that_comes_again_is_barred_anew() -> None:
    clock = ManualClock()
    names = RecentNames(clock, 1_000)
    names.add(ORDERS)
    clock.advance(600)
    names.add(JOBS)
    names.add(ORDERS)
    clock.advance(999)
    assert ORDERS in names
    clock.advance(1)
    assert ORDERS not in names


def test_the_same_name_of_another_account_is_another() -> None:
    names = RecentNames(ManualClock())
    names.add(ORDERS)
    assert TopicName("sqs-111111111111-us-east-1", "orders") not in names


def test_nothing_is_barred_for_zero_seconds() -> None:
    names = RecentNames(ManualClock(), 0)
    names.add(ORDERS)
    assert ORDERS not in names


def test_a_name_can_be_forgotten() -> None:
    names = RecentNames(ManualClock())
    names.add(ORDERS)
    names.discard(ORDERS)
    assert ORDERS not in names


def test_what_is_over_is_dropped_and_above_the_bound_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent_names, "NAMES_MAX", 3)
    clock = ManualClock()
    names = RecentNames(clock)
    many = [TopicName("default", f"queue-{index}") for index in range(5)]
    for name in many:
        names.add(name)
    assert [name in names for name in many] == [False, False, True, True, True]
    clock.advance(BARRED_MS)
    names.add(ORDERS)
    assert list(names._until_ms) == [ORDERS]
