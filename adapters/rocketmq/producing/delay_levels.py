"""Delays of messages: by level, or by a timer (``MessageConst``)."""

from collections.abc import Mapping
from typing import Final

from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.wire import ResponseCode

LEVELS_S: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200,
)  # fmt: skip
"""Seconds by level, from 1 on: ``messageDelayLevel`` of a server that is not configured."""
MS_PER_S: Final = 1_000
_DIGITS_MAX: Final = 15

LEVEL: Final = "DELAY"
TIMER_DELAY_S: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"


def deliver_at_unix_ms(properties: Mapping[str, str], now_unix_ms: int) -> int | None:
    """Return the time at which a message is due; None for now. A level beats a timer.

    Error: ``Refused`` with MESSAGE_ILLEGAL for a value that is no number.

    >>> deliver_at_unix_ms({"DELAY": "2"}, 1_000), deliver_at_unix_ms({}, 1_000)
    (6000, None)
    """
    if LEVEL in properties:
        level = min(_number(properties, LEVEL), len(LEVELS_S))
        if level > 0:
            return now_unix_ms + LEVELS_S[level - 1] * MS_PER_S
    due_unix_ms = now_unix_ms
    if TIMER_DELAY_S in properties:
        due_unix_ms += _number(properties, TIMER_DELAY_S) * MS_PER_S
    elif TIMER_DELAY_MS in properties:
        due_unix_ms += _number(properties, TIMER_DELAY_MS)
    elif TIMER_DELIVER_MS in properties:
        due_unix_ms = _number(properties, TIMER_DELIVER_MS)
    return due_unix_ms if due_unix_ms > now_unix_ms else None


def _number(properties: Mapping[str, str], name: str) -> int:
    text = properties[name]
    if text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= _DIGITS_MAX:
        return int(text)
    raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"{name} is no number: {text[:20]!r}")
