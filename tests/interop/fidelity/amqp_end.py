"""AMQP 0-9-1, by pika. A publisher's exchange is a fanout to its topic."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.fidelity.samples import (
    AMQP,
    SAMPLE_HEADER,
    Sample,
    Seen,
    Sending,
    as_text,
)

MS_PER_S = 1_000
WITHIN_S = 90
_FIELDS = ("content_type", "correlation_id", "reply_to", "expiration", "priority", "timestamp")


class AmqpEnd:
    """Publisher and consumer. ``topics``: those that it publishes to."""

    def __init__(self, url: str, *, topics: tuple[str, ...]) -> None:
        self._parameters = pika.URLParameters(url)
        self._topics = topics

    async def open(self) -> None:
        await asyncio.to_thread(self._declare)

    def _declare(self) -> None:
        self._connection = pika.BlockingConnection(self._parameters)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        delayed = {"x-delayed-type": "fanout"}
        for topic in self._topics:
            self._channel.exchange_declare(topic, "fanout", durable=True)
            self._channel.exchange_declare(
                _late(topic), "x-delayed-message", durable=True, arguments=delayed
            )
            self._channel.queue_declare(topic, durable=True)
            self._channel.queue_bind(topic, topic)
            self._channel.queue_bind(topic, _late(topic))

    async def send(self, sending: Sending) -> None:
        await asyncio.to_thread(self._send, sending)

    def _send(self, sending: Sending) -> None:
        for sample in sending.samples:
            exchange = sending.topic if sample.delay_s is None else _late(sending.topic)
            self._channel.basic_publish(
                exchange, sending.key, sample.value or b"", _to_amqp(sample), mandatory=False
            )

    async def receive(self, counts: Mapping[str, int]) -> list[Seen]:
        return await asyncio.to_thread(self._receive, counts)

    def _receive(self, counts: Mapping[str, int]) -> list[Seen]:
        found: list[Seen] = []
        with pika.BlockingConnection(self._parameters) as connection:
            channel = connection.channel()
            for topic in counts:
                channel.basic_consume(topic, partial(_take, found, topic))
            count = sum(counts.values())
            deadline = time.monotonic() + WITHIN_S
            while len(found) < count and time.monotonic() < deadline:
                connection.process_data_events(time_limit=0.1)
        assert len(found) == count, f"{len(found)} of {count} messages came by {AMQP}"
        return found

    async def close(self) -> None:
        await asyncio.to_thread(self._connection.close)


def _late(topic: str) -> str:
    return f"{topic}-late"


def _to_amqp(sample: Sample) -> pika.BasicProperties:
    headers: dict[str, object] = {
        name: value
        if sample.name == "binary header" and name != SAMPLE_HEADER
        else value.decode()
        for name, value in sample.all_headers
    }
    if sample.delay_s is not None:
        headers["x-delay"] = sample.delay_s * MS_PER_S
    if sample.dedup_id is not None:
        headers["dedup-id"] = sample.dedup_id
    expiry_s = sample.expiry_s
    return pika.BasicProperties(
        content_type=sample.content_type,
        headers=headers,
        delivery_mode=2,
        priority=sample.priority,
        correlation_id=sample.correlation,
        reply_to=sample.reply_to,
        expiration=None if expiry_s is None else str(expiry_s * MS_PER_S),
        timestamp=sample.timestamp_unix_s,
    )


def _take(  # noqa: PLR0917 - as pika calls it
    found: list[Seen],
    topic: str,
    channel: BlockingChannel,
    method: pika.spec.Basic.Deliver,
    properties: pika.BasicProperties,
    body: bytes,
) -> None:
    headers = [
        (name, as_text(value) if isinstance(value, bytes) else str(value))
        for name, value in (properties.headers or {}).items()
    ]
    fields = {f"header `{name}`": value for name, value in headers}
    fields["body"] = as_text(body)
    fields["routing key"] = method.routing_key
    for name in _FIELDS:
        if (value := getattr(properties, name)) is not None:
            fields[f"`{name}`"] = str(value)
    found.append(Seen(topic, dict(headers)[SAMPLE_HEADER], fields, headers))
    channel.basic_ack(method.delivery_tag)
