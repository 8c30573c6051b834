"""The rule of SQS fair queues (Amazon SQS developer guide, "Fair queues in detail")."""

import pytest

from features.fairness import HALF_LIFE_MS, TENANTS_MAX, Fairness

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("own", "others", "is_noisy"),
    [(30, 269, True), (30, 270, False), (29, 0, False), (30, 0, True), (101, 900, True)],
)
def test_more_than_a_tenth_and_thirty_in_flight_is_noisy(
    own: int, others: int, *, is_noisy: bool
) -> None:
    fairness = Fairness()
    fairness.took(b"own", own)
    fairness.took(None, others)

    assert fairness.is_noisy(b"own", NOW) is is_noisy


def test_tenant_is_quiet_again_when_its_messages_are_done() -> None:
    fairness = Fairness()
    fairness.took(b"a", 30)
    fairness.done(b"a", 1, 0, NOW)

    assert not fairness.is_noisy(b"a", NOW)


def test_messages_without_a_key_are_never_noisy() -> None:
    fairness = Fairness()
    fairness.took(None, 1_000)
    fairness.done(None, 500, 10_000, NOW)

    assert not fairness.is_noisy(None, NOW)


def spend(fairness: Fairness, key: bytes | None, span_ms: int, now: int = NOW) -> None:
    fairness.took(key, 1)
    fairness.done(key, 1, span_ms, now)


@pytest.mark.parametrize(("span_ms", "is_noisy"), [(101, True), (99, False)])
def test_more_than_a_tenth_of_the_time_spent_is_noisy(span_ms: int, *, is_noisy: bool) -> None:
    fairness = Fairness()
    spend(fairness, b"own", span_ms)
    for number in range(9):
        spend(fairness, b"%d" % number, 100)

    assert fairness.is_noisy(b"own", NOW) is is_noisy


def test_time_that_was_spent_fades() -> None:
    fairness = Fairness()
    spend(fairness, b"own", 1_000)
    later = NOW + 10 * HALF_LIFE_MS
    for number in range(20):
        spend(fairness, b"%d" % number, 1, later)

    assert not fairness.is_noisy(b"own", later)


@pytest.mark.parametrize("half_lives", [1, 63, 65, 200, 1_000_000])
def test_sums_stay_finite_for_ever(half_lives: int) -> None:
    fairness = Fairness()
    now = NOW
    for _ in range(50):
        spend(fairness, b"a", 1_000, now)
        spend(fairness, b"b", 9_500, now)
        now += half_lives * HALF_LIFE_MS

    assert not fairness.is_noisy(b"a", now)
    assert fairness.is_noisy(b"b", now)


def test_clock_that_goes_back_does_no_harm() -> None:
    fairness = Fairness()
    spend(fairness, b"a", 1_000, NOW)
    spend(fairness, b"b", 1_000, 0)

    assert fairness.is_noisy(b"a", 0)


def test_tenants_that_spent_little_are_forgotten() -> None:
    fairness = Fairness()
    for number in range(3 * TENANTS_MAX):
        spend(fairness, b"big", 1_000)
        spend(fairness, b"%d" % number, 1)

    assert fairness.tenant_count <= TENANTS_MAX
    assert fairness.is_noisy(b"big", NOW)
