"""Typed values of a command's fields, which are texts. Errors: ``Refused``, in the server's words.

Java writes ``4`` and ``true``; other clients leave out what has a default.
"""

from collections.abc import Mapping
from typing import Final

from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.wire import ResponseCode

Fields = Mapping[str, str]

_DIGITS_MAX: Final = 20  # of a number of 64 bits, with its sign
_I64: Final = range(-(1 << 63), 1 << 63)


def text_of(fields: Fields, name: str) -> str:
    """Return a field that must be there."""
    value = fields.get(name)
    if value is None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    return value


def number_of(fields: Fields, name: str, default: int | None = None) -> int:
    """Return a number of 64 bits; without a default the field must be there.

    >>> number_of({"queueId": "3"}, "queueId"), number_of({}, "batch", 7)
    (3, 7)
    """
    text = fields.get(name)
    if text is None and default is not None:
        return default
    text = text_of(fields, name)
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(text) <= _DIGITS_MAX:
        number = int(text)
        if number in _I64:
            return number
    raise Refused(ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is no number")


def flag_of(fields: Fields, name: str, *, default: bool = False) -> bool:
    """Return a boolean, as ``Boolean.parseBoolean`` reads it."""
    text = fields.get(name)
    return default if text is None else text.lower() == "true"
