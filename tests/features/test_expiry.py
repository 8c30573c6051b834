"""Deadlines of messages: the edge on both sides, and seconds that never grow."""

from hypothesis import given
from hypothesis import strategies as st

from features.expiry import (
    NEVER,
    REMAINING_S_MAX,
    expires_at_unix_ms,
    is_expired,
    remaining_s,
)

NOW = 1_700_000_000_000


def test_a_message_expires_at_its_deadline_and_not_before() -> None:
    deadline = expires_at_unix_ms(NOW, 3)

    assert not is_expired(deadline, NOW + 2_999)
    assert is_expired(deadline, NOW + 3_000)


def test_an_interval_of_zero_is_expired_at_once() -> None:
    assert is_expired(expires_at_unix_ms(NOW, 0), NOW)


def test_without_an_interval_nothing_expires() -> None:
    assert expires_at_unix_ms(NOW, None) == NEVER
    assert not is_expired(NEVER, NOW)
    assert remaining_s(NEVER, NOW) is None


def test_seconds_waited_are_taken_off() -> None:  # MQTT-3.3.2-6
    deadline = expires_at_unix_ms(NOW, 10)

    left = [remaining_s(deadline, NOW + ms) for ms in (0, 999, 1_000, 9_999, 10_000, 60_000)]

    assert left == [10, 10, 9, 1, 0, 0]


@given(interval_s=st.integers(0, 0xFFFFFFFF), waits=st.lists(st.integers(0, 10_000_000)))
def test_what_is_left_never_grows_and_is_zero_when_expired(
    interval_s: int, waits: list[int]
) -> None:
    deadline = expires_at_unix_ms(NOW, interval_s)
    before = interval_s
    for now in sorted(NOW + wait for wait in waits):
        left = remaining_s(deadline, now)
        assert left is not None
        assert left <= before
        assert (left == 0) == is_expired(deadline, now)
        before = left


def test_no_more_is_left_than_a_protocol_can_say() -> None:
    far = NOW + 9 * REMAINING_S_MAX * 1_000

    assert remaining_s(far, NOW) == REMAINING_S_MAX
    assert remaining_s(NOW + REMAINING_S_MAX * 1_000, NOW) == REMAINING_S_MAX
    assert remaining_s(NOW + REMAINING_S_MAX * 1_000, NOW + 1_000) == REMAINING_S_MAX - 1
