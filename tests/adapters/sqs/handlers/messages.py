"""Shared steps of message tests: sending, receiving, and letting time pass."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.model import Record
from gateway.records.codec import NO_HEADERS, encode_headers, iter_records
from gateway.records.record_run import RecordRun
from tests.adapters.sqs.handlers.serving import Live

HOUR_S = 3_600
WITHIN_S = 60.0


def fields(value: str, data_type: str = "String") -> dict[str, Any]:
    return {"DataType": data_type, "StringValue": value}


async def send(live: Live, url: str, body: str = "hello", **params: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await live.call(
        "send_message", QueueUrl=url, MessageBody=body, **params
    )
    return answer


async def receive(live: Live, url: str, count: int = 10, **params: Any) -> list[dict[str, Any]]:
    params = {"QueueUrl": url, "MaxNumberOfMessages": count, **params}
    answer: dict[str, Any] = await live.call("receive_message", **params)
    return list(answer.get("Messages", []))


async def receive_one(live: Live, url: str, **params: Any) -> dict[str, Any]:
    [message] = await receive(live, url, 1, **params)
    return message


async def bodies(live: Live, url: str, **params: Any) -> list[str]:
    return [message["Body"] for message in await receive(live, url, **params)]


async def delete(live: Live, url: str, message: dict[str, Any]) -> None:
    handle = message["ReceiptHandle"]
    await live.call("delete_message", QueueUrl=url, ReceiptHandle=handle)


async def change(live: Live, url: str, message: dict[str, Any], timeout_s: int) -> None:
    await live.call(
        "change_message_visibility",
        QueueUrl=url,
        ReceiptHandle=message["ReceiptHandle"],
        VisibilityTimeout=timeout_s,
    )


async def let_pass(live: Live, seconds: float) -> None:
    """Let time pass and run what is due, as the timers of a node do."""
    live.clock.advance(round(seconds * 1_000))
    live.kernel.queues._context.leases.run_due()
    live.kernel.queues._pending_receives.run_due()
    live.kernel.delays.run()
    await asyncio.to_thread(int)  # the loop turns


async def append(
    live: Live,
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    name: str = "orders",
) -> None:
    """Append a record as any other protocol might."""
    queue = live.kept(name)
    block = encode_headers(headers) if headers else NO_HEADERS
    run = RecordRun(key, (value,), block, live.clock.unix_ms())
    done = asyncio.get_running_loop().create_future()
    live.kernel.queues.coalescer.add(queue.partition_for(key), run, done.set_result)
    assert await done is None


@contextlib.contextmanager
def full_disk(live: Live) -> Iterator[None]:
    """Fill the disk for messages; the reserve for acknowledgements stays free."""
    config = live.storage._config
    live.storage._config = config.model_copy(update={"reserve_bytes": config.bytes_max})
    try:
        yield
    finally:
        live.storage._config = config


async def until_waiting(live: Live, count: int = 1) -> None:
    """Return when so many receives wait."""
    async with asyncio.timeout(WITHIN_S):
        while live.kernel.queues.waiting_count < count:
            await asyncio.to_thread(int)


def records(live: Live, name: str = "orders") -> list[Record]:
    """Return what a Kafka client would read of a queue's topic."""
    found: list[Record] = []
    topic = live.kept(name).topic
    for number in range(len(topic.partition_ids)):
        partition = live.kernel.broker.partition(topic, number)
        batches = live.kernel.broker.read(partition, 0, bytes_max=1 << 30) or ()
        found += [record for batch in batches for record in iter_records(batch)]
    return found
