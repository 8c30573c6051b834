"""Lines to commands and answers to lines. Pure: no I/O, no state."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from gateway.errors import GatewayError, InvalidRequest, MessageTooLarge, PeerError
from gateway.model import Record
from gateway.queues.model import Delivery

NUMBER_CHARS_MAX: Final = 19  # of an offset, which has 64 bits


class LineTooLong(PeerError, MessageTooLarge):
    """A line above ``line_bytes_max``, complete or not; what follows cannot be trusted."""


class Ping(NamedTuple):
    """``PING``."""


class Authenticate(NamedTuple):
    """``AUTH user password``."""

    username: str
    password: str


class Publish(NamedTuple):
    """``PUB topic text``."""

    topic: str
    text: str


class Later(NamedTuple):
    """``LATER ms topic text``: the message comes to its topic after some milliseconds."""

    delay_ms: int
    topic: str
    text: str


class Subscribe(NamedTuple):
    """``SUB topic [reader]``: messages from now on, or from where a named reader has come to."""

    topic: str
    reader: str = ""


class Seen(NamedTuple):
    """``SEEN topic reader offset``: the reader goes on behind this message."""

    topic: str
    reader: str
    offset: int


class Take(NamedTuple):
    """``TAKE queue``: one message, which no other client gets until its lease is over."""

    queue: str


class Done(NamedTuple):
    """``DONE queue partition offset attempt``: the message goes from the queue."""

    queue: str
    partition: int
    offset: int
    attempt: int


Command = Ping | Authenticate | Publish | Later | Subscribe | Seen | Take | Done

USAGE: Final = (
    "PING, AUTH user password, PUB topic text, LATER ms topic text, SUB topic [reader], "
    "SEEN topic reader offset, TAKE queue or DONE queue partition offset attempt"
)


def take_lines(received: bytearray, *, line_bytes_max: int) -> list[bytes]:
    r"""Remove the whole lines from ``received`` and return them without their ends.

    Errors: ``LineTooLong``.

    >>> take_lines(bytearray(b"PING\r\nPU"), line_bytes_max=16)
    [b'PING']
    """
    *lines, rest = bytes(received).split(b"\n")
    if max(map(len, [*lines, rest])) > line_bytes_max:
        msg = f"a line is longer than {line_bytes_max} bytes"
        raise LineTooLong(msg)
    received[:] = rest
    return [line.removesuffix(b"\r") for line in lines]


def decode_command(line: bytes) -> Command:
    """Return what a line says. Errors: ``InvalidRequest``, ``PeerError`` for what is no text.

    >>> decode_command(b"PUB orders hello world")
    Publish(topic='orders', text='hello world')
    """
    try:
        verb, _, rest = line.decode().partition(" ")
    except UnicodeDecodeError as error:
        msg = "a line is not UTF-8"
        raise PeerError(msg) from error
    with suppress(KeyError, TypeError, ValueError):
        return _COMMANDS[verb.upper()](rest)
    raise InvalidRequest(USAGE)


def _ping(rest: str) -> Ping:
    if rest:
        raise ValueError(rest)
    return Ping()


def _pair(rest: str) -> tuple[str, str]:
    """Return the first word and the text behind it."""
    first, space, text = rest.partition(" ")
    if not first or not space:
        raise ValueError(rest)
    return first, text


def _words(rest: str) -> list[str]:
    words = rest.split(" ")
    if not all(words):
        raise ValueError(rest)
    return words


def _later(rest: str) -> Later:
    delay_ms, message = _pair(rest)
    return Later(_number(delay_ms), *_pair(message))


def _seen(rest: str) -> Seen:
    topic, reader, offset = _words(rest)
    return Seen(topic, reader, _number(offset))


def _done(rest: str) -> Done:
    queue, *numbers = _words(rest)
    return Done(queue, *map(_number, numbers))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < NUMBER_CHARS_MAX):
        raise ValueError(text)
    return int(text)


_COMMANDS: Final[Mapping[str, Callable[[str], Command]]] = {
    "PING": _ping,
    "AUTH": lambda rest: Authenticate(*_pair(rest)),
    "PUB": lambda rest: Publish(*_pair(rest)),
    "LATER": _later,
    "SUB": lambda rest: Subscribe(*_words(rest)),
    "SEEN": _seen,
    "TAKE": lambda rest: Take(*_words(rest)),
    "DONE": _done,
}


def encode_ok(*words: object) -> bytes:
    """Return a positive answer."""
    return " ".join(["+OK", *map(str, words)]).encode() + b"\n"


def encode_error(error: GatewayError) -> bytes:
    """Return a negative answer: the error's name and text."""
    text = " ".join(str(error).split())
    return f"-{type(error).__name__} {text}".rstrip().encode() + b"\n"


def encode_message(topic: str, partition: int, record: Record) -> bytes:
    """Return one message for a subscriber."""
    return f"MSG {topic} {partition} {record.offset} {_text_of(record)}\n".encode()


def encode_delivery(queue: str, delivery: Delivery) -> bytes:
    """Return one message of a queue, with the numbers that ``DONE`` takes."""
    partition, offset, attempt = delivery.delivery_id
    return f"MSG {queue} {partition} {offset} {attempt} {_text_of(delivery.record)}\n".encode()


def _text_of(record: Record) -> str:
    """Return the value as a JSON string, so that it is one line."""
    value = None if record.value is None else record.value.decode(errors="replace")
    return json.dumps(value, ensure_ascii=False)
