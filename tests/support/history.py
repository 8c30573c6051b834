"""A history of what clients asked for, what they were answered, and what came to them.

Load clients record here; the rules, after those of Jepsen, are in ``history_kafka``,
``history_mqtt`` and ``history_sqs``. Every value is sent once in a history, so that each delivery
names its send. An operation without an answer stays unknown: it may have happened or not, and no
rule presumes either.

    history = History()
    send = history.send("producer", "orders-0", b"producer/17")
    history.end(send, Outcome.OK, offset=5)
    history.take("consumer", "orders-0", b"producer/17", offset=5)
    check_partitions(history).raise_problems()
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

EVENTS_MAX: Final = 5_000_000
_SHORT_BYTES: Final = 48
_SHOWN_MAX: Final = 5


class Outcome(Enum):
    """The answer to an operation."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class TooManyEvents(Exception):
    """The history is full: a rule over a part of it would be wrong."""


@dataclass(slots=True)
class Operation:
    """A send or a delete. ``began`` and ``ended`` are places in the order of all events."""

    kind: str
    client: str
    where: str
    value: str
    began: int
    group: str = ""
    qos: int = 0
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1
    ended: int = -1

    def __str__(self) -> str:
        at = f" at {self.offset}" if self.offset >= 0 else ""
        answer = f"{self.outcome.value}{at}"
        return (
            f"#{self.began} {self.client} {self.kind}s {self.value} to {self.where}: {answer}"
        )


@dataclass(slots=True)
class Delivery:
    """A message that came to a client; ``asked`` is the event before its request was sent."""

    client: str
    where: str
    value: str
    number: int
    offset: int = -1
    identity: str = ""
    qos: int = 0
    asked: int = -1

    def __str__(self) -> str:
        at = f" at {self.offset}" if self.offset >= 0 else ""
        name = f" as {self.identity}" if self.identity else ""
        return f"#{self.number} {self.client} takes {self.value} of {self.where}{at}{name}"


class History:
    """A recorder for any number of threads and tasks, with a bound on its events."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self.sends: dict[str, Operation] = {}
        self.deletes: list[Operation] = []
        self.deliveries: list[Delivery] = []
        self._events_max = events_max
        self._events = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        """Return the number of the last event; what comes later is newer."""
        with self._lock:
            return self._events

    def send(
        self, client: str, where: str, value: bytes | str, *, group: str = "", qos: int = 0
    ) -> Operation:
        """Record a send before it leaves. Where is a partition, a topic or a queue."""
        name = name_of(value)
        with self._lock:
            assert name not in self.sends, f"{client} sends {name} again: values are unique"
            operation = Operation("send", client, where, name, self._next(), group, qos)
            self.sends[name] = operation
        return operation

    def find(self, value: bytes | str) -> Operation:
        """Return the send of a value."""
        return self.sends[name_of(value)]

    def delete(self, client: str, where: str, value: bytes | str) -> Operation:
        """Record a delete before it leaves."""
        with self._lock:
            operation = Operation("delete", client, where, name_of(value), self._next())
            self.deletes.append(operation)
        return operation

    def end(self, operation: Operation, outcome: Outcome, *, offset: int = -1) -> None:
        """Record the answer to an operation; after a repeat, the last answer."""
        with self._lock:
            operation.ended = self._next()
            operation.outcome = outcome
            operation.offset = offset

    def take(
        self,
        client: str,
        where: str,
        value: bytes | str,
        *,
        offset: int = -1,
        identity: str = "",
        qos: int = 0,
        asked: int = -1,
    ) -> Delivery:
        """Record a message that came.

        A consumer that begins anew, after a rebalance, is a client of another name. ``identity``
        is the server's name of the message (SQS's MessageId).
        """
        name = name_of(value)
        with self._lock:
            send = self.sends.get(name)
            name = name if send is None else send.value  # one copy of each name in memory
            delivery = Delivery(client, where, name, self._next(), offset, identity, qos, asked)
            self.deliveries.append(delivery)
        return delivery

    def _next(self) -> int:
        if self._events >= self._events_max:
            raise TooManyEvents(f"more than {self._events_max} events")
        self._events += 1
        return self._events


def name_of(value: bytes | str) -> str:
    """Return a short name that stands for a value: its beginning, and a digest of a long one."""
    data = value.encode() if isinstance(value, str) else value
    text = data[:_SHORT_BYTES].decode("ascii", "backslashreplace")
    if len(data) <= _SHORT_BYTES:
        return text
    return f"{text[:16]}~{hashlib.blake2b(data, digest_size=12).hexdigest()}"


@dataclass
class Report:
    """Problems by rule, each with the operations it is about, and counts of what is allowed."""

    problems: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, rule: str, *events: object) -> None:
        """Add a problem with its operations."""
        self.problems.setdefault(rule, []).append("; ".join(str(event) for event in events))

    @property
    def rules(self) -> set[str]:
        """Return the names of the broken rules."""
        return set(self.problems)

    def __str__(self) -> str:
        lines = []
        for rule, found in self.problems.items():
            lines.append(f"{rule}: {len(found)}")
            lines.extend(f"  {one}" for one in found[:_SHOWN_MAX])
            if len(found) > _SHOWN_MAX:
                lines.append(f"  and {len(found) - _SHOWN_MAX} more")
        return "\n".join(lines) or "no problem"

    def raise_problems(self) -> None:
        """Fail the test when there are any."""
        assert not self.problems, f"\n{self}"


def check_known(history: History, report: Report) -> None:
    """Check that what came was sent, and was not refused."""
    for delivery in history.deliveries:
        send = history.sends.get(delivery.value)
        if send is None:
            report.add("never sent", delivery)
        elif send.outcome is Outcome.FAIL:
            report.add("refused, and there", send, delivery)


def acknowledged(operations: Iterable[Operation]) -> list[Operation]:
    """Return the operations that were answered with success."""
    return [one for one in operations if one.outcome is Outcome.OK]
