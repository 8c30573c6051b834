"""Rates in sliding windows and token buckets, against plain models of Kafka's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.quota.rates import (
    SAMPLE_MS,
    SAMPLES,
    THROTTLE_MS_MAX,
    TokenBucket,
    WindowedRate,
    burst,
)

WINDOW_MS = SAMPLES * SAMPLE_MS

CHARGES = st.lists(
    st.tuples(st.integers(0, 4_000), st.integers(-300, 3_000)), min_size=1, max_size=60
)
LIMITS = st.floats(1, 500)


def model_wait_ms(events: list[tuple[int, int]], now_ms: int, limit: float) -> int:
    """Kafka's formula over all events: (rate - limit) / limit * window."""
    samples: list[list[int]] = []
    for at_ms, amount in events:
        if not samples or at_ms - samples[-1][0] >= SAMPLE_MS:
            samples.append([at_ms, 0])
        samples[-1][1] += amount
    kept = [one for one in samples if now_ms - one[0] < WINDOW_MS]
    total = sum(amount for _, amount in kept)
    if not kept or total <= 0:
        return 0
    window_ms = now_ms - kept[0][0]
    window_ms += max(SAMPLES - 1 - window_ms // SAMPLE_MS, 0) * SAMPLE_MS
    rate = total / window_ms * 1_000
    return min(max(round((rate - limit) / limit * window_ms), 0), THROTTLE_MS_MAX)


@given(charges=CHARGES, limit=LIMITS)
def test_a_rate_is_that_of_the_model(charges: list[tuple[int, int]], limit: float) -> None:
    rate, now_ms = WindowedRate(), 5_000
    events = []
    for after_ms, amount in charges:
        now_ms += after_ms
        events.append((now_ms, amount))
        wait_ms = rate.charge(amount, now_ms, limit)
        assert wait_ms == pytest.approx(model_wait_ms(events, now_ms, limit), abs=1)
    later_ms = now_ms + WINDOW_MS
    assert rate.excess_ms(later_ms, limit) == 0


def test_ten_seconds_worth_passes_at_once_and_no_more() -> None:
    rate = WindowedRate()
    assert rate.charge(burst(100.0), 0, 100.0) == 0
    assert rate.charge(50, 0, 100.0) == 500  # the time in which 50 more come


def test_a_client_that_waits_is_within_its_limit_again() -> None:
    rate = WindowedRate()
    wait_ms = rate.charge(1_700, 0, 100.0)
    assert wait_ms == 7_000
    assert rate.excess_ms(wait_ms - 1_000, 100.0) > 0
    assert rate.excess_ms(wait_ms + 4_000, 100.0) == 0


def test_a_wait_is_bounded() -> None:
    assert WindowedRate().charge(1e12, 0, 1.0) == THROTTLE_MS_MAX


@given(charges=CHARGES, limit=LIMITS)
def test_a_bucket_is_that_of_the_model(charges: list[tuple[int, int]], limit: float) -> None:
    bucket, now_ms, tokens = TokenBucket(0, limit), 0, limit * SAMPLES
    for after_ms, amount in charges:
        now_ms += after_ms
        tokens = min(tokens + limit * after_ms / 1_000, limit * SAMPLES) - abs(amount)
        expected = min(max(-tokens / limit * 1_000, 0), THROTTLE_MS_MAX)
        assert bucket.charge(abs(amount), now_ms, limit) == pytest.approx(expected, abs=1)


def test_a_bucket_lets_one_request_take_more_than_it_has() -> None:
    bucket = TokenBucket(0, 2.0)
    assert bucket.charge(2 * SAMPLES, 0, 2.0) == 0
    assert bucket.charge(4, 0, 2.0) == 2_000
    assert bucket.excess_ms(1_999, 2.0) > 0
    assert bucket.excess_ms(2_000, 2.0) == 0
