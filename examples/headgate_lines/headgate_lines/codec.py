"""Lines to commands and answers to lines. Pure: no I/O, no state."""

import json
from typing import NamedTuple

from gateway.errors import GatewayError, InvalidRequest, MessageTooLarge, PeerError
from gateway.model import Record


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


class Subscribe(NamedTuple):
    """``SUB topic``: whatever is published from now on."""

    topic: str


Command = Ping | Authenticate | Publish | Subscribe


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
    first, space, second = rest.partition(" ")
    match verb.upper():
        case "PING" if not rest:
            return Ping()
        case "AUTH" if first and space:
            return Authenticate(first, second)
        case "PUB" if first and space:
            return Publish(first, second)
        case "SUB" if first and not space:
            return Subscribe(first)
    msg = "PING, AUTH user password, PUB topic text or SUB topic"
    raise InvalidRequest(msg)


def encode_ok(*words: object) -> bytes:
    """Return a positive answer."""
    return " ".join(["+OK", *map(str, words)]).encode() + b"\n"


def encode_error(error: GatewayError) -> bytes:
    """Return a negative answer: the error's name and text."""
    text = " ".join(str(error).split())
    return f"-{type(error).__name__} {text}".rstrip().encode() + b"\n"


def encode_message(topic: str, partition: int, record: Record) -> bytes:
    """Return one message for a subscriber; its text is a JSON string, so it is one line."""
    value = None if record.value is None else record.value.decode(errors="replace")
    text = json.dumps(value, ensure_ascii=False)
    return f"MSG {topic} {partition} {record.offset} {text}\n".encode()
