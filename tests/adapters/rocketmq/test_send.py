"""Sends: their forms, their checks, and what is in the log then."""

import asyncio
import struct
import zlib
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from adapters.rocketmq.remoting.message_codec import BatchMember, encode_batch
from adapters.rocketmq.remoting.wire import RequestCode, ResponseCode
from gateway.model import Record, TopicName
from gateway.records.codec import decode_batch
from tests.adapters.rocketmq.running_adapter import (
    BORN_UNIX_MS,
    RunningRocketMq,
    pull,
    running,
    send,
    send_fields,
)
from tests.support.waiting import until

LONG_NAMES = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "m": "batch",
}  # fmt: skip


def records(live: RunningRocketMq, topic: str, number: int = 0) -> list[Record]:
    """Return the records of a partition."""
    found = live.kernel.topics.get(TopicName("default", topic))
    partition = live.kernel.broker.partition(found, number)
    batches = live.kernel.broker.read(partition, 0, bytes_max=1 << 30) or ()
    return [record for batch in batches for record in decode_batch(batch)]


async def test_a_message_is_in_the_log_when_it_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders", 2)
        client = await live.client()
        before, live.storage.held = live.storage.enqueued, True
        pending = asyncio.ensure_future(send(client, "orders", b"hello", "TAGS\x01a\x02", e=1))
        await until(lambda: live.storage.enqueued > before)
        assert not pending.done()
        live.storage.release()
        response = await pending
        assert (response.code, response.fields["queueId"], response.fields["queueOffset"]) == (
            ResponseCode.SUCCESS,
            "1",
            "0",
        )
        port = live.adapter.broker_address.port
        assert response.fields["msgId"].startswith(f"7F000001{port:08X}")
        [record] = records(live, "orders", 1)
        assert (record.value, record.timestamp_unix_ms) == (b"hello", live.clock.unix_ms())
        headers = dict(record.headers)
        assert headers["rocketmq.tags"] == b"a"
        assert headers["rocketmq.born-timestamp"] == b"%d" % BORN_UNIX_MS
        assert len(headers["message-id"] or b"") == 32


async def test_long_names_and_letters_say_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        client = await live.client()
        letters = send_fields("orders", "UNIQ_KEY\x01id\x02", h=3)
        long = {LONG_NAMES[name]: value for name, value in letters.items()}
        first = await client.call(RequestCode.SEND_MESSAGE, long, b"one")
        second = await client.call(RequestCode.SEND_MESSAGE_V2, letters, b"one")
        assert (first.code, second.code) == (0, 0)
        assert first.fields["transactionId"] == "id"
        one, other = records(live, "orders")
        assert one._replace(offset=1) == other
        assert dict(one.headers)["rocketmq.flag"] == b"3"


async def test_an_unknown_topic_is_made_with_the_queues_that_are_asked_for(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, default_topic_queues=3) as live:
        client = await live.client()
        for topic, asked, made in (("few", 2, 2), ("many", 4, 3), ("none", 0, 1)):
            assert (await send(client, topic, b"x", d=asked)).code == ResponseCode.SUCCESS
            found = live.kernel.topics.get(TopicName("default", topic))
            assert len(found.partition_ids) == made
        both = [send(client, "raced", b"%d" % number) for number in range(2)]
        assert [one.code for one in await asyncio.gather(*both)] == [0, 0]


async def test_without_auto_creation_an_unknown_topic_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, auto_create=False) as live:
        response = await send(await live.client(), "orders", b"x")
        assert response.code == ResponseCode.TOPIC_NOT_EXIST


async def test_the_server_chooses_a_queue_in_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders", 2)
        client = await live.client()
        chosen = [(await send(client, "orders", b"x", e=-1)).fields["queueId"] for _ in "abc"]
        assert chosen == ["0", "1", "0"]


async def test_a_oneway_send_is_not_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        client = await live.client()
        await client.send_oneway(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"oneway")
        await client.send_oneway(RequestCode.SEND_MESSAGE_V2, send_fields("%illegal."), b"x")
        assert (await send(client, "orders", b"after")).code == ResponseCode.SUCCESS
        assert [one.value for one in records(live, "orders")] == [b"oneway", b"after"]


async def test_a_batch_is_one_append(tmp_path: Path) -> None:
    members = [
        BatchMember(number, b"%d" % number, {"UNIQ_KEY": f"id{number}", "TAGS": "a"})
        for number in range(3)
    ]
    async with running(tmp_path) as live:
        await live.topic("orders")
        client = await live.client()
        fields = send_fields("orders", "UNIQ_KEY\x01whole\x02")
        await send(client, "orders", b"before")
        for code, more in (
            (RequestCode.SEND_BATCH_MESSAGE, {}),
            (RequestCode.SEND_MESSAGE_V2, {"m": "true"}),
        ):
            response = await client.call(code, {**fields, **more}, encode_batch(members))
            assert response.code == ResponseCode.SUCCESS
        assert response.fields["queueOffset"] == "4"
        ids = response.fields["msgId"].split(",")
        assert [int(one[-1]) for one in ids] == [4, 5, 6]
        stored = records(live, "orders")[4:]
        assert [one.value for one in stored] == [b"0", b"1", b"2"]
        assert [dict(one.headers)["message-id"] for one in stored] == [b"id0", b"id1", b"id2"]


@pytest.mark.parametrize(
    ("flag", "compressed"),
    [
        (0x1, zlib.compress(b"hello" * 999)),
        (0x301, zlib.compress(b"hello" * 999)),
        (0x101, lz4.frame.compress(b"hello" * 999)),
        (0x201, zstandard.ZstdCompressor().compress(b"hello" * 999)),
    ],
)
async def test_a_compressed_body_is_stored_as_it_was(
    flag: int, compressed: bytes, tmp_path: Path
) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        client = await live.client()
        assert (await send(client, "orders", compressed, f=flag)).code == ResponseCode.SUCCESS
        assert [one.value for one in records(live, "orders")] == [b"hello" * 999]
        assert (
            await send(client, "orders", b"no", f=flag)
        ).code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_delayed_message_comes_when_it_is_due(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.topic("orders")
        client = await live.client()
        assert (await send(client, "orders", b"later", "DELAY\x012\x02")).code == 0
        due = f"TIMER_DELIVER_MS\x01{live.clock.unix_ms() + 3_000}\x02"
        assert (await send(client, "orders", b"sooner", due)).code == 0
        assert (await send(client, "orders", b"past", "TIMER_DELIVER_MS\x011\x02")).code == 0
        assert [one.value for one in records(live, "orders")] == [b"past"]
        live.clock.advance(5_000)
        live.kernel.delays.run()
        await until(lambda: len(records(live, "orders")) == 3)
        _, messages = await pull(client, "orders", 1)
        assert [one.body for one in messages] == [b"sooner", b"later"]
        assert messages[1].properties["DELAY"] == "2"


@pytest.mark.parametrize(
    ("fields", "body", "code"),
    [
        ({"b": "a.b"}, b"x", ResponseCode.INVALID_PARAMETER),
        ({"b": " "}, b"x", ResponseCode.INVALID_PARAMETER),
        ({"b": "x" * 128}, b"x", ResponseCode.INVALID_PARAMETER),
        ({"b": "TBW102"}, b"x", ResponseCode.NO_PERMISSION),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, b"x", ResponseCode.NO_PERMISSION),
        ({"b": "%RETRY%group"}, b"x", ResponseCode.TOPIC_NOT_EXIST),
        ({"e": 1}, b"x", ResponseCode.INVALID_PARAMETER),
        ({"i": "x" * 32_768}, b"x", ResponseCode.MESSAGE_ILLEGAL),
        ({"i": "TRAN_MSG\x01true\x02"}, b"x", ResponseCode.NO_PERMISSION),
        ({"f": 4}, b"x", ResponseCode.NO_PERMISSION),
        ({"i": "DELAY\x01soon\x02"}, b"x", ResponseCode.MESSAGE_ILLEGAL),
        ({}, b"x" * 2_049, ResponseCode.MESSAGE_ILLEGAL),
        ({"f": 1}, zlib.compress(bytes(2_049)), ResponseCode.MESSAGE_ILLEGAL),
        ({"f": 1}, zlib.compress(bytes(2_000))[:-1], ResponseCode.MESSAGE_ILLEGAL),
        ({"f": 0x401}, b"x", ResponseCode.MESSAGE_ILLEGAL),
        ({"m": "true"}, b"", ResponseCode.MESSAGE_ILLEGAL),
        ({"m": "true"}, b"x" * 2_049, ResponseCode.MESSAGE_ILLEGAL),
        ({"m": "true"}, struct.pack(">iiiii", 99, 0, 0, 0, 50), ResponseCode.MESSAGE_ILLEGAL),
        (
            {"m": "true"},
            encode_batch([BatchMember(0, b"", {"DELAY": "1"})]),
            ResponseCode.MESSAGE_ILLEGAL,
        ),
        ({"e": "zero"}, b"x", ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_message_that_cannot_be_is_refused(
    fields: dict[str, Any], body: bytes, code: ResponseCode, tmp_path: Path
) -> None:
    async with running(tmp_path, message_bytes_max=2_048) as live:
        await live.topic("orders")
        client = await live.client()
        changed = {**send_fields("orders"), **{name: str(one) for name, one in fields.items()}}
        response = await client.call(RequestCode.SEND_MESSAGE_V2, changed, body)
        assert (response.code, bool(response.remark)) == (code, True)
        assert records(live, "orders") == []
