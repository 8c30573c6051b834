"""Fields of JSON bodies, checked: RabbitMQ's tools send booleans and numbers as text, too."""

from collections.abc import Mapping
from typing import Any, Final

from adapters.amqp.management.errors import bad_request
from adapters.amqp.v091.fields import DEPTH_MAX, Table, to_table

_TRUE: Final = frozenset({"true"})
_FALSE: Final = frozenset({"false", ""})
_LONG_MAX: Final = (1 << 63) - 1


def need(body: Mapping[str, Any], *names: str) -> None:
    """Check that fields are there. Error: 400, in RabbitMQ's words."""
    missing = [f"{{key_missing,{name}}}" for name in names if body.get(name) is None]
    if missing:
        raise bad_request(f"[{','.join(missing)}]")


def text_of(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a field that is text; without a default it has to be there. Error: 400."""
    value = body.get(name, default)
    if value is None:
        raise bad_request(f"[{{key_missing,{name}}}]")
    if not isinstance(value, str):
        raise bad_request(f"{name} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise bad_request(f"{name} is not UTF-8") from error
    return value


def short_text_of(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a field of at most 255 bytes. Error: 400."""
    text = text_of(body, name, default)
    if len(text.encode()) > 255:  # noqa: PLR2004 - of a short string
        raise bad_request(f"{name} is longer than 255 bytes")
    return text


def bool_of(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """Return a field that is a boolean, or its text. Error: 400."""
    value = body.get(name, default)
    if isinstance(value, bool):
        return value
    if value is None:
        return default
    if isinstance(value, str) and value in _TRUE | _FALSE:
        return value in _TRUE
    raise bad_request(f"{{not_boolean,{value!r:.80}}}")


def int_of(body: Mapping[str, Any], name: str, default: int) -> int:
    """Return a field that is an integer, or its text. Error: 400."""
    value = body.get(name, default)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(value) if isinstance(value, str) else _not_integer(value)
    except ValueError:
        return _not_integer(value)


def _not_integer(value: object) -> int:
    raise bad_request(f"{{not_integer,{value!r:.80}}}")


def table_of(body: Mapping[str, Any], name: str) -> Table:
    """Return a field that is an object, as a table. Error: 400."""
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} is not an object")
    _check(value, name, 1)
    return to_table(value)


def _check(value: Any, name: str, depth: int) -> None:  # noqa: ANN401 - JSON
    """Check that a value can be sent in a table; ``depth`` is bounded."""
    if depth >= DEPTH_MAX:
        raise bad_request(f"{name} is nested too deeply")
    if isinstance(value, dict):
        for key, one in value.items():
            short_text_of({"key": key}, "key")
            _check(one, name, depth + 1)
    elif isinstance(value, list):
        for one in value:
            _check(one, name, depth + 1)
    elif isinstance(value, str):
        text_of({name: value}, name)
    elif isinstance(value, int) and abs(value) > _LONG_MAX:
        raise bad_request(f"{name}: {value!s:.40} has more than 64 bits")
