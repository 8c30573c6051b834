"""Expiry of messages: deadlines in unix milliseconds, 0 for never.

MQTT counts in whole seconds that are left (MQTT 5.0 section 3.3.2.3.3). A stored message has a
deadline, which neither a restart nor a wait changes. The caller chooses the clock of both times:
``Clock.steady_deadline`` of a stored deadline, and steady time.
"""

from typing import Final

NEVER: Final = 0
REMAINING_S_MAX: Final = 0xFFFF_FFFF
"""Largest value of a protocol's field (MQTT 5.0 section 3.3.2.3.3): 136 years."""

_MS_PER_S: Final = 1_000


def expires_at_unix_ms(now_unix_ms: int, interval_s: int | None) -> int:
    """Return the deadline of a message that came now; without an interval there is none.

    >>> expires_at_unix_ms(1_700_000_000_000, 2), expires_at_unix_ms(1_700_000_000_000, None)
    (1700000002000, 0)
    """
    return NEVER if interval_s is None else now_unix_ms + interval_s * _MS_PER_S


def is_expired(deadline_unix_ms: int, now_unix_ms: int) -> bool:
    """Whether the deadline is reached; an interval of 0 is expired at once."""
    return deadline_unix_ms != NEVER and now_unix_ms >= deadline_unix_ms


def remaining_s(deadline_unix_ms: int, now_unix_ms: int) -> int | None:
    """Return the whole seconds that are left: 0 is expired, None is never.

    Only whole seconds of waiting are taken off (MQTT-3.3.2-6): what has not expired has one
    left at least, and the number is never above the one that came in, nor above
    ``REMAINING_S_MAX``: a deadline may be further away, as it was stored or by a step of the clock.

    >>> remaining_s(10_000, 9_999), remaining_s(10_000, 10_000), remaining_s(0, 5)
    (1, 0, None)
    """
    if deadline_unix_ms == NEVER:
        return None
    left_s = -((now_unix_ms - deadline_unix_ms) // _MS_PER_S)
    return min(max(left_s, 0), REMAINING_S_MAX)
