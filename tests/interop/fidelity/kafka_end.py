"""Kafka, by aiokafka."""

import time
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.interop.fidelity.samples import (
    SAMPLE_HEADER,
    Headers,
    Sample,
    Seen,
    Sending,
    as_text,
)

MS_PER_S = 1_000


class KafkaEnd:
    """Producer and consumer."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def open(self) -> None:
        self._producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, acks="all")
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="earliest"
        )
        await self._producer.start()
        await self._consumer.start()

    async def send(self, sending: Sending) -> None:
        for sample in sending.samples:
            stamp_s = sample.timestamp_unix_s
            await self._producer.send_and_wait(
                sending.topic,
                sample.value,
                sending.key.encode(),
                partition=0,
                timestamp_ms=None if stamp_s is None else stamp_s * MS_PER_S,
                headers=list(_headers_of(sample)),
            )

    async def receive(self, counts: Mapping[str, int]) -> list[Seen]:
        self._consumer.assign([TopicPartition(topic, 0) for topic in counts])
        return [_seen(await self._consumer.getone()) for _ in range(sum(counts.values()))]

    async def close(self) -> None:
        await self._producer.stop()
        await self._consumer.stop()


def _headers_of(sample: Sample) -> Headers:
    now_ms = int(time.time() * MS_PER_S)
    known: tuple[tuple[str, object], ...] = (
        ("content-type", sample.content_type),
        ("correlation-id", sample.correlation),
        ("reply-to", sample.reply_to),
        ("expires-at", sample.expiry_s and now_ms + sample.expiry_s * MS_PER_S),
        ("deliver-at", sample.delay_s and now_ms + sample.delay_s * MS_PER_S),
        ("priority", sample.priority),
        ("dedup-id", sample.dedup_id),
    )
    set_ones = [(name, str(value).encode()) for name, value in known if value is not None]
    return (*sample.all_headers, *set_ones)


def _seen(record: Any) -> Seen:
    headers = [(name, as_text(value)) for name, value in record.headers if value is not None]
    fields = {f"header `{name}`": value for name, value in headers}
    fields["timestamp"] = str(record.timestamp // MS_PER_S)
    if record.key is not None:
        fields["key"] = as_text(record.key)
    value = record.value
    fields["value"] = "null" if value is None else as_text(value)
    return Seen(record.topic, dict(headers)[SAMPLE_HEADER], fields, headers)
