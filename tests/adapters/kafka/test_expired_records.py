"""Fetch from topics with ``expiry.enable``: expired records are left out."""

from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.model import TopicName
from gateway.records.codec import decode_batch, encode_batch
from tests.adapters.kafka.running_adapter import Live, fetch, produce, running
from tests.support.kafka_wire import fetch_records, produce_errors

ORDERS = TopicName("default", "orders")


async def fetched(live: Live) -> list[bytes | None]:
    client = await live.client()
    client.send(fetch(1, 0))
    _, high_watermark, records = fetch_records((await client.answer())[1])
    assert high_watermark == 2
    return [record.value for record in decode_batch(records)]


@pytest.mark.parametrize("expires", ["true", "false"])
async def test_what_has_expired_comes_only_without_the_config(
    tmp_path: Path, expires: str
) -> None:
    async with running(tmp_path) as live:
        await live.kernel.topics.alter_configs(ORDERS, {"expiry.enable": expires})
        clock = live.kernel.clock
        assert isinstance(clock, ManualClock)
        now_unix_ms = clock.unix_ms()
        deadline = ("expires-at", b"%d" % (now_unix_ms + 1_000))
        records = [(now_unix_ms, None, b"stays", []), (now_unix_ms, None, b"goes", [deadline])]
        client = await live.client()
        client.send(produce(1, encode_batch(records)))
        assert produce_errors((await client.answer())[1]) == [(0, 0)]

        before = await fetched(live)
        clock.advance(1_000)
        after = await fetched(live)

        assert before == [b"stays", b"goes"]
        assert after == ([b"stays"] if expires == "true" else before)
