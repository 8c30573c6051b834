"""Stock producers delay records by a header; stock consumers see them when they are due."""

import asyncio
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Message, Producer

from tests.support.topics import create_topic

pytestmark = pytest.mark.interop

WAIT_S_MAX = 90
DELAY_MS = 5_000  # what is sent is there before it is due, also on a busy machine


async def consumed(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, float]]:
    """Return each value with the time of its arrival."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    try:
        found: list[tuple[bytes, float]] = []
        async with asyncio.timeout(WAIT_S_MAX):
            while len(found) < count:
                record = await consumer.getone()
                found.append((record.value, time.time()))
        return found
    finally:
        await consumer.stop()


def due_header(due_s: float) -> list[tuple[str, bytes]]:
    return [("deliver-at", str(int(due_s * 1_000)).encode())]


async def test_aiokafka(bootstrap: str) -> None:
    async with asyncio.TaskGroup() as every:  # they wait together
        for compression in (None, "gzip", "zstd"):
            for idempotent in (False, True):
                every.create_task(delayed_by_aiokafka(bootstrap, compression, idempotent))


async def delayed_by_aiokafka(
    bootstrap: str,
    compression: str | None,
    idempotent: bool,  # noqa: FBT001
) -> None:
    topic = create_topic(bootstrap, configs={"delay.enable": "true"})
    producer: Any = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=idempotent,
        compression_type=compression,
        linger_ms=50,
    )
    await producer.start()
    due_s = time.time() + DELAY_MS / 1_000
    later = await producer.send(topic, b"later", headers=due_header(due_s))
    now = await producer.send(topic, b"now")
    offsets = [(await later).offset, (await now).offset]
    await producer.stop()

    found = await consumed(bootstrap, topic, 2)

    assert offsets[0] < 0  # one batch: no offset is known for what waits
    assert [value for value, _ in found] == [b"now", b"later"]
    assert found[1][1] >= due_s - 0.001


async def test_confluent(bootstrap: str) -> None:
    async with asyncio.TaskGroup() as every:
        for idempotent in (False, True):
            every.create_task(delayed_by_confluent(bootstrap, idempotent))


async def delayed_by_confluent(bootstrap: str, idempotent: bool) -> None:  # noqa: FBT001
    topic = create_topic(bootstrap, configs={"delay.enable": "true"})
    told: list[Message] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": idempotent, "linger.ms": 20}
    )
    due_s = time.time() + DELAY_MS / 1_000
    for number in range(1_000):
        producer.produce(
            topic,
            b"%d" % number,
            headers=due_header(due_s) if number % 2 else None,
            on_delivery=lambda error, message: told.append(error or message),
        )
    assert producer.flush(WAIT_S_MAX) == 0

    found = await consumed(bootstrap, topic, 1_000)

    assert all(isinstance(one, Message) for one in told)
    assert [value for value, _ in found] == [
        b"%d" % number for first in (0, 1) for number in range(first, 1_000, 2)
    ]
    assert min(when_s for _, when_s in found[500:]) >= due_s - 0.001
