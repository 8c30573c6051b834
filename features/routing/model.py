"""Exchanges, bindings and messages, as routing knows them.

Values of headers and arguments are those of an AMQP 0-9-1 table: None is void, a table is a
mapping. ``format_arguments`` is their text, in which 1, 1.0 and true differ.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gateway.errors import RequestError

Value = bool | int | float | str | bytes | list[Any] | dict[str, Any] | None
Table = Mapping[str, Value]

DEFAULT_EXCHANGE: Final = ""
"""Name of the exchange that routes to the queue whose name is the routing key."""
ALTERNATE_EXCHANGE: Final = "alternate-exchange"
DELAYED_TYPE: Final = "x-delayed-type"

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_BYTES: Final = "$base64"  # the key of an object that stands for bytes in the text of arguments


class InvalidExchange(RequestError):
    """Exchange whose type or arguments are not valid."""


class InvalidBinding(RequestError):
    """Binding whose routing key or arguments do not suit the type of its exchange."""


class ExchangeType(Enum):
    """Type of an exchange, by its name in AMQP."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
    CONSISTENT_HASH = "x-consistent-hash"
    MODULUS_HASH = "x-modulus-hash"
    RANDOM = "x-random"
    LOCAL_RANDOM = "x-local-random"
    RECENT_HISTORY = "x-recent-history"
    DELAYED = "x-delayed-message"


class Destination(NamedTuple):
    """Queue, or exchange, to which a binding leads."""

    name: str
    is_exchange: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """Exchange as routing knows it.

    ``alternate``: name of the exchange that gets the messages for which no binding matches; it
    need not exist.
    """

    name: str
    type: ExchangeType
    arguments: Table = field(default_factory=dict)
    alternate: str | None = None

    @property
    def matching_type(self) -> ExchangeType:
        """The type by which bindings match: a delayed exchange has that of its argument."""
        if self.type is ExchangeType.DELAYED:
            return ExchangeType(self.arguments[DELAYED_TYPE])
        return self.type


class Binding(NamedTuple):
    """Rule of an exchange. Routing key and arguments identify it beside its two ends.

    ``arguments_text`` is what ``format_arguments`` returns, so that a binding can be compared.
    """

    source: str
    destination: Destination
    routing_key: str = ""
    arguments_text: str = "{}"

    @property
    def arguments(self) -> dict[str, Value]:
        """The arguments, parsed."""
        return parse_arguments(self.arguments_text)


class Message(NamedTuple):
    """Parts of a message that routing looks at.

    ``routing_keys`` are the message's own key and those of its CC and BCC headers, in this order.
    ``properties``: ``message_id``, ``correlation_id`` and ``timestamp`` as text, where set.
    """

    routing_keys: Sequence[str]
    headers: Table = _NOTHING
    properties: Mapping[str, str] = _NOTHING


def format_arguments(arguments: Table) -> str:
    """Return the text of arguments: JSON, sorted by name. Bytes are an object with base64.

    >>> format_arguments({"x-match": "any", "n": 1, "raw": b"a"})
    '{"n":1,"raw":{"$base64":"YQ=="},"x-match":"any"}'
    """
    if not arguments:
        return "{}"
    return json.dumps(
        dict(arguments), default=_encode_bytes, separators=(",", ":"), sort_keys=True
    )


def parse_arguments(text: str) -> dict[str, Value]:
    """Return the arguments of their text. Error: ``ValueError``."""
    if text == "{}":
        return {}
    found = json.loads(text, object_hook=_decode_bytes)
    if not isinstance(found, dict):
        msg = "arguments are not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 - the text's value is wrong
    return found


def _encode_bytes(value: object) -> dict[str, str]:
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    msg = f"{type(value).__name__} is no value of an argument"
    raise TypeError(msg)


def _decode_bytes(found: dict[str, Any]) -> dict[str, Any] | bytes:
    if len(found) == 1 and isinstance(text := found.get(_BYTES), str):
        return base64.b64decode(text)
    return found
