"""Delayed exchange (x-delayed-message): the delay that a message asks for.

The exchange's argument ``x-delayed-type`` names the type by which it routes. A message whose
header ``x-delay`` is between 1 and 2^32 - 1 milliseconds waits at the exchange and is routed when
it is due, by the bindings of that time. The delivered header is negative, so that a second
delayed exchange behind the first does not delay the message again.
"""

from typing import Final

from features.routing.model import DELAYED_TYPE, ExchangeType, InvalidExchange, Table, Value

X_DELAY: Final = "x-delay"
DELAY_MS_MAX: Final = (1 << 32) - 1

_DIGITS_MAX: Final = 32  # a longer text is no delay


def delay_ms_of(headers: Table) -> int:
    """Return the delay in milliseconds that the headers ask for; 0 for none.

    Integers count, and text and floats that are a number; others are ignored.

    >>> delay_ms_of({"x-delay": 50}), delay_ms_of({"x-delay": "70"}), delay_ms_of({"x-delay": -5})
    (50, 70, 0)
    """
    delay_ms = _to_int(headers.get(X_DELAY))
    return delay_ms if 0 < delay_ms <= DELAY_MS_MAX else 0


def check_delayed_type(arguments: Table) -> ExchangeType:
    """Return the type of a delayed exchange's argument. Error: ``InvalidExchange``."""
    name = arguments.get(DELAYED_TYPE)
    known = [one.value for one in ExchangeType if one is not ExchangeType.DELAYED]
    if name not in known:
        msg = f"{DELAYED_TYPE} must be an exchange type: {', '.join(known)}"
        raise InvalidExchange(msg)
    return ExchangeType(name)


def _to_int(value: Value) -> int:
    if isinstance(value, bytes):
        value = value[: _DIGITS_MAX + 1].decode("latin-1")
    if isinstance(value, str) and (len(value) > _DIGITS_MAX or not value.isascii()):
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0
    try:
        return int(value) if isinstance(value, int) else int(float(value))
    except (ValueError, OverflowError):
        return 0
