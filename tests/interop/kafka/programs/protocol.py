"""Protocol between the suite and client programs, for any language.

    produce  --bootstrap B --topic T --compression C [--idempotent]
             records as JSON lines on standard input -> {"partition": 0, "offset": 7} for each
    consume  --bootstrap B --topic T --partitions P --count N [--from-ms MS] -> records
             begins at the start of all partitions, or at the first record of partition 0 at or
             after MS
    member   --bootstrap B --topic T --group G -> {"assigned": [0, 2]} after each rebalance
             and a record for each message; runs until SIGTERM, then leaves the group
    admin    --bootstrap B --topic T --group G -> one object: step -> what it saw

A record is {"partition", "offset", "timestamp", "key", "value", "headers"}; key, value and
header values are base64 or null. Partition may be null when producing.
"""

import argparse
import base64
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

SESSION_TIMEOUT_MS: Final = 6_000
HEARTBEAT_MS: Final = 500

# What the admin round trip does with a topic, in words that every program shares.
PARTITIONS_AT_FIRST: Final = 2
PARTITIONS_LATER: Final = 4
RETENTION_MS: Final = "86400000"
MESSAGE_BYTES: Final = "2000000"
RECORDS: Final = 10
DELETE_BEFORE: Final = 4
COMMITTED: Final = 7

# Outcomes are Kafka's error codes; 0 is success.
UNKNOWN_TOPIC: Final = 3


@dataclass(frozen=True)
class Message:
    """One record that a client writes or reads. ``partition`` None: the client chooses."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None
    offset: int | None = field(default=None, compare=False)

    def to_json(self) -> str:
        """Return the message as a line of the protocol."""
        return json.dumps(
            {
                "partition": self.partition,
                "offset": self.offset,
                "timestamp": self.timestamp_ms,
                "key": _to_text(self.key),
                "value": _to_text(self.value),
                "headers": [[name, _to_text(value)] for name, value in self.headers],
            }
        )


def _to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def message_of(row: dict[str, Any]) -> Message:
    """Return the message that a line's object describes."""
    return Message(
        value=_to_bytes(row["value"]),
        key=_to_bytes(row["key"]),
        headers=tuple((name, _to_bytes(value)) for name, value in row["headers"]),
        timestamp_ms=row["timestamp"],
        partition=row["partition"],
        offset=row["offset"],
    )


class ClientProgram(Protocol):
    """Operations that the program of a Python client implements, called by ``run``."""

    def produce(self, arguments: argparse.Namespace, messages: list[Message]) -> None:
        """Produce all messages and ``say`` the partition and offset of each."""
        ...

    def consume(self, arguments: argparse.Namespace) -> None:
        """Read ``arguments.count`` messages and ``say`` them."""
        ...

    def member(self, arguments: argparse.Namespace, stop: threading.Event) -> None:
        """Run as a member of a group until ``stop`` is set."""
        ...

    def admin(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """Run the admin round trip; return the result of each step."""
        ...


def say(row: dict[str, Any] | Message) -> None:
    """Print one line at once."""
    line = row.to_json() if isinstance(row, Message) else json.dumps(row)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def settled(look: Callable[[], Any], expected: object) -> Any:
    """Return the result of ``look`` once it is ``expected`` or 10 s are over.

    Apache Kafka answers some changes before every part of it knows them.
    """
    pause = threading.Event()
    for _ in range(200):
        with contextlib.suppress(LookupError):
            seen = look()
            if seen == expected:
                return seen
        pause.wait(0.05)
    return look()


def messages_from(lines: Iterator[str]) -> list[Message]:
    """Return the messages of JSON lines."""
    return [message_of(json.loads(line)) for line in lines if line.strip()]


def run(program: ClientProgram) -> None:
    """Run the operation of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["produce", "consume", "member", "admin"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--from-ms", type=int)
    arguments = parser.parse_args()
    if arguments.verb == "produce":
        program.produce(arguments, messages_from(sys.stdin))
    elif arguments.verb == "consume":
        program.consume(arguments)
    elif arguments.verb == "member":
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        program.member(arguments, stop)
    else:
        say(program.admin(arguments))
