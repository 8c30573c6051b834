"""The table of docs/fidelity.md, which the tests prove cell by cell.

``python -m tests.interop.fidelity.table`` writes the page.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.fidelity.outcomes import Cannot, Cell, Kept, Mapped, Pair, Row
from tests.interop.fidelity.samples import AMQP, KAFKA, MQTT, PROTOCOLS, SQS

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "fidelity.md"
DUE: Final = "at its time"
IN_ORDER: Final = {
    KAFKA: "headers",
    MQTT: "user properties",
    SQS: "attributes by name",
    AMQP: "headers",
}
"""Name of all headers together."""

_DEFAULT_KEY: Final = Cannot(
    "a message without an exchange has the queue's name as routing key"
)
_PUBLISHERS_OWN: Final = "the property is the AMQP publisher's own"


def _known(header: str, mqtt: str, amqp: str) -> tuple[Cell, Cell, Cell, Cell]:
    """Return the cells of a header that MQTT and AMQP have a field for."""
    return (
        Cell(Mapped(f"header `{header}`")),
        Cell(Kept(mqtt)),
        Cell(Mapped(f"attribute `{header}`")),
        Cell(Kept(amqp)),
    )


ROWS: Final = (
    Row(
        "null value",
        (
            Cell(Kept("value")),
            Cell(Mapped("user property `mqtt.null`", "1"), unsent="a payload is bytes"),
            Cell(Mapped("attribute `sqs.body`", "null"), unsent="a body is text"),
            Cell(Cannot("a null is an empty body", "body"), unsent="a body is bytes"),
        ),
    ),
    Row(
        "empty value",
        (
            Cell(Kept("value")),
            Cell(Kept("payload")),
            Cell(Kept("MessageBody"), unsent="a body has at least one character"),
            Cell(Kept("body")),
        ),
    ),
    Row(
        "binary value",
        (
            Cell(Kept("value")),
            Cell(Kept("payload")),
            Cell(Mapped("MessageBody in base64"), unsent="a body is text"),
            Cell(Kept("body")),
        ),
    ),
    Row(
        "headers in order",
        (
            Cell(Kept("headers")),
            Cell(Kept("user properties")),
            Cell(
                Cannot("attributes have no order", "attributes by name", "a=2,b=1,c=3"),
                unsent="attributes have no order",
            ),
            Cell(Kept("headers")),
        ),
    ),
    Row(
        "repeated header",
        (
            Cell(Kept("headers")),
            Cell(Kept("user properties")),
            Cell(
                Mapped("attribute `sqs.headers`", '[{"name":"a","value":"2"}]'),
                unsent="a name has one attribute",
            ),
            Cell(
                Cannot("clients keep the last of a name", "header `a`", "2"),
                unsent="clients have one value for a name",
            ),
        ),
    ),
    Row(
        "binary header",
        (
            Cell(Kept("header `h`")),
            Cell(Mapped("user property `h;base64`", "/wA="), unsent="a user property is text"),
            Cell(Kept("attribute `h`")),
            Cell(Kept("header `h`")),
        ),
    ),
    Row(
        "key",
        (
            Cell(Kept("key")),
            Cell(Mapped("topic name")),
            Cell(Mapped("MessageGroupId")),
            Cell(_DEFAULT_KEY, sent="routing key"),
        ),
        (Pair(AMQP, AMQP, Mapped("routing key")),),
    ),
    Row(
        "group",
        (
            Cell(Mapped("key")),
            Cell(Mapped("topic name")),
            Cell(Kept("MessageGroupId")),
            Cell(_DEFAULT_KEY, sent="routing key"),
        ),
        (Pair(AMQP, AMQP, Mapped("routing key")),),
    ),
    Row(
        "timestamp",
        (
            Cell(Kept("timestamp")),
            Cell(Cannot("a PUBLISH has no time"), unsent="a PUBLISH has no time"),
            Cell(Kept("SentTimestamp"), unsent="it is the time of the send"),
            Cell(Kept("`timestamp`")),
        ),
        (
            Pair(KAFKA, AMQP, Cannot(_PUBLISHERS_OWN)),
            Pair(AMQP, KAFKA, Mapped("header `amqp.timestamp`")),
            Pair(AMQP, MQTT, Mapped("user property `amqp.timestamp`")),
            Pair(AMQP, SQS, Mapped("attribute `amqp.timestamp`")),
        ),
    ),
    Row("content type", _known("content-type", "Content Type", "`content_type`")),
    Row("correlation", _known("correlation-id", "Correlation Data", "`correlation_id`")),
    Row("reply-to", _known("reply-to", "Response Topic", "`reply_to`")),
    Row(
        "expiry",
        (
            Cell(Mapped("header `expires-at`")),
            Cell(Kept("Message Expiry Interval")),
            Cell(Mapped("attribute `expires-at`"), unsent="queues have one, messages none"),
            Cell(Kept("`expiration`")),
        ),
        (
            Pair(KAFKA, AMQP, Cannot(_PUBLISHERS_OWN)),
            Pair(MQTT, AMQP, Cannot(_PUBLISHERS_OWN)),
        ),
    ),
    Row(
        "delay",
        (
            Cell(Kept(DUE), sent="header `deliver-at`"),
            Cell(Kept(DUE), sent="topic `$delayed/<s>/...`"),
            Cell(Kept(DUE), sent="DelaySeconds"),
            Cell(Kept(DUE), sent="header `x-delay`"),
        ),
    ),
    Row(
        "priority",
        (
            Cell(Mapped("header `priority`")),
            Cell(Mapped("user property `priority`")),
            Cell(Mapped("attribute `priority`")),
            Cell(Kept("`priority`")),
        ),
    ),
    Row(
        "dedup id",
        (
            Cell(Mapped("header `dedup-id`")),
            Cell(
                Mapped("user property `dedup-id`"),
                unsent="the name is reserved for the gateway",
            ),
            Cell(Kept("MessageDeduplicationId")),
            Cell(Mapped("header `dedup-id`")),
        ),
    ),
    Row(
        "trace context",
        (
            Cell(Kept("header `traceparent`")),
            Cell(Kept("user property `traceparent`")),
            Cell(Kept("attribute `traceparent`")),
            Cell(Kept("header `traceparent`")),
        ),
    ),
)

_ABOVE: Final = """\
# What becomes of a property between protocols

Each protocol reads what the others write. For example, the Response Topic of an MQTT publish is
`reply_to` for an AMQP consumer, and the header `reply-to` for a Kafka consumer.

The tables are made from `tests/interop/fidelity/table.py`. Its tests send every property by every
protocol, and receive it by every protocol, with aiokafka, paho, boto3 and pika at the two ends of
one gateway.

- **kept**: the protocol has the property, and its field has what was sent.
- **mapped**: another field has it.
- **cannot**: no client of the protocol can see or send it. The message comes nevertheless, and the
  log keeps the property for others.

## Properties and protocols

The key is the ordering key: messages of one key, which SQS calls a group, come in order to every
receiver. Units change where protocols differ: `expires-at` and `deliver-at` are unix milliseconds,
a Message Expiry Interval is what is left in seconds, `expiration` milliseconds as text.

"""
_BETWEEN: Final = """
Where the body is base64, the attribute `sqs.body` says so. An expired message is delivered by no
protocol, whether or not that shows when it expires. Kafka delays and expires records of topics with
`delay.enable` and `expiry.enable`.

## Where it depends on the sender

"""
_BELOW: Final = """
[kafka.md](protocols/kafka.md), [mqtt.md](protocols/mqtt.md), [sqs.md](protocols/sqs.md) and
[amqp.md](protocols/amqp.md) have the details of each protocol: reserved names, limits, and values
that are not what their name says.
"""


def page() -> str:
    """Return the page."""
    return "".join((_ABOVE, *_matrix(), _BETWEEN, *_pairs(), _BELOW))


def _matrix() -> Iterator[str]:
    yield f"| property | {' | '.join(PROTOCOLS)} |\n"
    yield "|---" * (len(PROTOCOLS) + 1) + "|\n"
    for row in ROWS:
        yield f"| {row.name} | {' | '.join(map(str, row.cells))} |\n"


def _pairs() -> Iterator[str]:
    yield "| property | sender | receiver | |\n"
    yield "|---|---|---|---|\n"
    for row in ROWS:
        for pair in row.pairs:
            yield f"| {row.name} | {pair.sender} | {pair.receiver} | {pair.seen} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
