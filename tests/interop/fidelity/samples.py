"""Messages that are sent: one for each property, by each protocol that has it.

Each goes to two topics of its sender: from one Kafka, MQTT and AMQP receive it, from the other SQS,
as SQS and AMQP share what a queue has.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

KAFKA: Final = "Kafka"
MQTT: Final = "MQTT"
SQS: Final = "SQS"
AMQP: Final = "AMQP"
PROTOCOLS: Final = (KAFKA, MQTT, SQS, AMQP)

SAMPLE_HEADER: Final = "sample"
"""Header of every message: the property that it is about."""
DELAY_S: Final = 1
EXPIRY_S: Final = 600
_CLOCKS_DIFFER_S: Final = 0.02  # the gateway rounds to milliseconds

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Sample:
    """Message in no protocol's terms; what is not set is not sent."""

    name: str
    value: bytes | None = b"value"
    headers: Headers = ()
    timestamp_unix_s: int | None = None
    content_type: str | None = None
    correlation: str | None = None
    reply_to: str | None = None
    expiry_s: int | None = None
    delay_s: int | None = None
    priority: int | None = None
    dedup_id: str | None = None

    @property
    def all_headers(self) -> Headers:
        """The headers, with the one that names the sample."""
        return ((SAMPLE_HEADER, self.name.encode()), *self.headers)


NOW_S: Final = int(time.time())
SAMPLES: Final[Mapping[str, tuple[Sample, ...]]] = {
    found[0].name: found
    for found in (
        (Sample("null value", None),),
        (Sample("empty value", b""),),
        (Sample("binary value", bytes(range(256))),),
        (Sample("headers in order", headers=(("b", b"1"), ("a", b"2"), ("c", b"3"))),),
        (Sample("repeated header", headers=(("a", b"1"), ("a", b"2"))),),
        (Sample("binary header", headers=(("h", b"\xff\x00"),)),),
        (Sample("key"),),
        (Sample("group", b"first"), Sample("group", b"second"), Sample("group", b"third")),
        (Sample("timestamp", timestamp_unix_s=NOW_S - 60),),
        (Sample("content type", content_type="text/plain"),),
        (Sample("correlation", correlation="c-1"),),
        (Sample("reply-to", reply_to="answers/1"),),
        (Sample("expiry", expiry_s=EXPIRY_S),),
        (Sample("delay", delay_s=DELAY_S),),
        (Sample("priority", priority=7),),
        (Sample("dedup id", dedup_id="d-1"),),
        (Sample("trace context", headers=(("traceparent", b"00-1f-2e-01"),)),),
    )
}


@dataclass
class Seen:
    """Message as a client has received it: its fields by their names in the protocol.

    ``name``: of its sample. ``headers``: all of them, in order. ``arrived_s``: by ``time.time``.
    """

    topic: str
    name: str
    fields: dict[str, str]
    headers: list[tuple[str, str]]
    arrived_s: float = field(default_factory=time.time)


@dataclass(frozen=True)
class Sending:
    """Messages of one property by one protocol."""

    sender: str
    topic: str
    samples: tuple[Sample, ...]

    @property
    def name(self) -> str:
        """The property."""
        return self.samples[0].name

    @property
    def key(self) -> str:
        """Key of the records, an MQTT topic name."""
        return key_of(self.topic, self.name)


class End(Protocol):
    """Client of a protocol. Sending and receiving may run at once."""

    async def open(self) -> None:
        """Connect, and make what is not made by the gateway's settings."""
        ...

    async def send(self, sending: Sending) -> None:
        """Send messages, and wait until they are acknowledged."""
        ...

    async def receive(self, counts: Mapping[str, int]) -> list[Seen]:
        """Return all messages: as many of each topic as ``counts`` says."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


def key_of(topic: str, name: str) -> str:
    """Return the key of a property's messages in a topic."""
    return f"fidelity/{topic}/{name.replace(' ', '-')}"


def as_text(value: bytes) -> str:
    """Return bytes as text, each byte one character."""
    return value.decode("latin-1")


def is_due(seen: Seen, sent_s: float) -> bool:
    """Say whether a delayed message that was sent not before ``sent_s`` came in time."""
    return seen.arrived_s + _CLOCKS_DIFFER_S >= sent_s + DELAY_S
