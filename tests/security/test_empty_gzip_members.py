"""A batch that is many empty members of gzip: it is refused where batches are decoded."""

import gzip
from pathlib import Path
from typing import Final

import pytest

from adapters.kafka.errors import ErrorCode
from gateway.model import HEADER_BYTES, TopicName
from tests.adapters.kafka.running_adapter import running
from tests.support.batches import patched, sample_batch
from tests.support.kafka_wire import PRODUCE, produce_body, produce_errors, request

ATTRIBUTES_AT: Final = 21
LENGTH_AT: Final = 8
GZIP: Final = 1
MEMBERS: Final = 40_000  # 800 kB
ORDERS: Final = TopicName("default", "orders")


@pytest.mark.parametrize("policy", ["compact", "queue"])
async def test_empty_members_are_refused(tmp_path: Path, policy: str) -> None:
    plain = sample_batch(count=20)
    payload = gzip.compress(b"") * MEMBERS + gzip.compress(bytes(plain[HEADER_BYTES:]))
    hostile = plain[:HEADER_BYTES] + payload
    hostile = patched(hostile, LENGTH_AT, ">i", len(hostile) - 12)
    hostile = patched(hostile, ATTRIBUTES_AT, ">h", GZIP)
    async with running(tmp_path) as live:
        await live.kernel.topics.alter_configs(ORDERS, {"cleanup.policy": policy})
        client = await live.client()
        for said, wanted in ((hostile, ErrorCode.CORRUPT_MESSAGE), (plain, ErrorCode.NONE)):
            client.send(request(PRODUCE, 7, 1, produce_body([("orders", 0, bytes(said))])))
            [(code, _)] = produce_errors((await client.answer())[1])
            assert code == wanted
