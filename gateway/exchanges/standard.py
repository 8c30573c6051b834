"""Exchanges that every namespace has, and the rules of names."""

from typing import Final

from features.routing.model import DEFAULT_EXCHANGE, Exchange, ExchangeType
from gateway.errors import InvalidRequest, PolicyViolation, RequestError
from gateway.exchanges.model import ExchangeName

NAME_BYTES_MAX: Final = 255
RESERVED: Final = "amq."
DEFAULT_SHOWN: Final = "amq.default"
"""Name of the default exchange where an empty one cannot be written, as in a path."""
STANDARD: Final = (
    Exchange("amq.direct", ExchangeType.DIRECT),
    Exchange("amq.fanout", ExchangeType.FANOUT),
    Exchange("amq.headers", ExchangeType.HEADERS),
    Exchange("amq.match", ExchangeType.HEADERS),
    Exchange("amq.topic", ExchangeType.TOPIC),
)


class ExchangeNotFound(RequestError):
    """Unknown exchange."""


class ExchangeExists(RequestError):
    """Exchange of that name exists, and differs."""


class ExchangeInUse(RequestError):
    """Exchange that still has bindings."""


class BindingNotFound(RequestError):
    """Unknown binding."""


def shown(name: str) -> str:
    """Return an exchange's name for people: the default exchange is ``amq.default``."""
    return name or DEFAULT_SHOWN


def named(text: str) -> str:
    """Return the name of an exchange that people name: the reverse of ``shown``."""
    return DEFAULT_EXCHANGE if text == DEFAULT_SHOWN else text


def check_new_name(name: ExchangeName) -> None:
    """Check the name of a new exchange. Errors: ``InvalidRequest``, ``PolicyViolation``."""
    check_text("exchange name", name.name)
    check_text("namespace", name.namespace)
    if name.name == DEFAULT_EXCHANGE:
        raise PolicyViolation("operation not permitted on the default exchange")
    if name.name.startswith(RESERVED):
        raise PolicyViolation(f"exchange name {name.name!r} contains reserved prefix 'amq.*'")


def check_text(what: str, text: str) -> None:
    """Check a name or a routing key: UTF-8 of 255 bytes at most, no NUL or line break."""
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what} is not valid UTF-8") from None
    if size_bytes > NAME_BYTES_MAX or any(character in text for character in "\0\r\n"):
        raise InvalidRequest(
            f"{what} is not text of at most {NAME_BYTES_MAX} bytes without NUL and line breaks"
        )
