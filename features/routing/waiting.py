"""Header of a message that waits at a delayed exchange: how it is routed when it is due."""

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from features.routing.delayed import X_DELAY, delay_ms_of
from features.routing.model import Message, format_arguments, parse_arguments
from gateway.model import Headers

WAITING_HEADER: Final = "amqp.waiting"


class WaitingMessage(NamedTuple):
    """Exchange at which a message waits, and the parts of it that routing looks at."""

    namespace: str
    exchange: str
    message: Message


def format_waiting(waiting: WaitingMessage) -> bytes:
    """Return the value of the header. Its ``x-delay`` is negative from here on."""
    namespace, exchange, message = waiting
    table = {**message.headers, X_DELAY: -delay_ms_of(message.headers)}
    row = [
        namespace,
        exchange,
        list(message.routing_keys),
        format_arguments(table),
        dict(message.properties),
    ]
    return json.dumps(row, separators=(",", ":")).encode()


def parse_waiting(headers: Headers) -> WaitingMessage | None:
    """Return what the last such header says; None without a valid one."""
    for name, value in reversed(headers):
        if name == WAITING_HEADER and value is not None:
            try:
                namespace, exchange, keys, table, properties = json.loads(value)
                message = Message(
                    list(map(str, keys)), parse_arguments(table), dict(properties)
                )
            except (ValueError, TypeError, RecursionError):
                return None
            return WaitingMessage(str(namespace), str(exchange), message)
    return None


def headers_when_due(
    headers: Headers, left_out: Iterable[str]
) -> list[tuple[str, bytes | None]]:
    """Return a message's own headers, with the negative ``x-delay`` of a delivered message."""
    gone = {WAITING_HEADER, *left_out}
    return [
        (name, b"-" + value if name == X_DELAY and value and value[:1] != b"-" else value)
        for name, value in headers
        if name not in gone
    ]
