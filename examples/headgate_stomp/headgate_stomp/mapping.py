"""Headers of SEND as headers of records, and back. All units change here.

    STOMP             unit      record
    amqp-message-id   text      message-id
    expiration        ms        expires-at (unix ms, now + it); MESSAGE has `expires`
    key               text      the record's key; without it the routing key, or none
    persistent        -         not stored, as everything is; MESSAGE says true
    <adapter>.name    text      stomp.user.<adapter>.name: clients set no header of an adapter
    others            text      the same name

`content-type`, `content-encoding`, `correlation-id`, `reply-to`, `priority`, `type`, `user-id` and
`app-id` have the same names everywhere. Values that are not UTF-8 come with backslash escapes.
"""

from collections.abc import Iterable
from typing import Final

from gateway.errors import InvalidRequest
from gateway.model import DLQ_PREFIX, EXPIRES_AT, MESSAGE_ID, Headers, unix_ms_in

AMQP_MESSAGE_ID: Final = "amqp-message-id"
EXPIRES: Final = "expires"
KEY: Final = "key"
_EXPIRATION: Final = "expiration"
_USER: Final = "stomp.user."
_OF_FRAMES: Final = frozenset(
    {"destination", "receipt", "transaction", "content-length", "persistent", KEY, _EXPIRATION}
)
"""Headers of SEND that say what to do with it, and are not the message's."""
_OF_MESSAGES: Final = frozenset(
    {"destination", "subscription", "message-id", "ack", "redelivered", "persistent"}
    | {"content-length", EXPIRES, AMQP_MESSAGE_ID}
)
"""Headers of MESSAGE that the gateway sets: a record's own of these names are not shown."""
_EXPIRATION_DIGITS_MAX: Final = 12


def to_headers(
    headers: Iterable[tuple[str, str]], *, now_unix_ms: int, reserved: tuple[str, ...]
) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record. Error: ``InvalidRequest`` for a bad ``expiration``.

    ``reserved``: prefixes of headers that no client sets.
    """
    found: list[tuple[str, bytes | None]] = []
    for name, value in headers:
        if name == _EXPIRATION:
            found.append((EXPIRES_AT, b"%d" % (now_unix_ms + _parse_expiration(value))))
        elif name == AMQP_MESSAGE_ID:
            found.append((MESSAGE_ID, value.encode()))
        elif name.startswith(reserved) or name in {EXPIRES_AT, MESSAGE_ID}:
            found.append((f"{_USER}{name}", value.encode()))
        elif name not in _OF_FRAMES:
            found.append((name, value.encode()))
    return found


def _parse_expiration(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _EXPIRATION_DIGITS_MAX):
        msg = f"expiration {text[:40]!r} is no number of milliseconds"
        raise InvalidRequest(msg)
    return int(text)


def from_headers(headers: Headers, hidden: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the headers of MESSAGE that come from a record.

    ``hidden``: prefixes of headers that are not shown, those of dead letters excepted.
    """
    found: list[tuple[str, str]] = []
    for name, value in headers:
        if name == EXPIRES_AT:
            if (unix_ms := unix_ms_in(value)) is not None:
                found.append((EXPIRES, str(unix_ms)))
        elif name == MESSAGE_ID:
            found.append((AMQP_MESSAGE_ID, _text(value)))
        elif name.startswith(_USER):
            found.append((name.removeprefix(_USER), _text(value)))
        elif name.startswith(DLQ_PREFIX) or not (
            name in _OF_MESSAGES or name.startswith(hidden) or not name
        ):
            found.append((name, _text(value)))
    return found


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="backslashreplace")
