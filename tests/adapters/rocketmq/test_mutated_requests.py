"""Mutated requests of every kind: each is answered or ends its connection, and meets no bug."""

import asyncio
import contextlib
import json
from pathlib import Path
from random import Random

from adapters.rocketmq.handlers import BROKER_HANDLERS, NAMESERVER_HANDLERS
from adapters.rocketmq.remoting.codec import encode_frame
from adapters.rocketmq.remoting.message_codec import BatchMember, encode_batch
from adapters.rocketmq.remoting.wire import Command, RequestCode, Serialization
from gateway.listener import Listener
from tests.adapters.rocketmq.running_adapter import (
    RunningRocketMq,
    pull_fields,
    running,
    send,
    send_fields,
)

ROUNDS = 12
MUTATIONS_MAX = 3
DEADLINE_S = 60
VALUES = ("", "-1", "0", "9" * 18, "9" * 19, "x", "\0", "%RETRY%g", "a.b", "é" * 200, "true")
WHERE = {"namespace": "n", "key": "k", "value": "v", "consumerGroup": "group"}
LOCK = {"consumerGroup": "group", "clientId": "c", "mqSet": [
    {"topic": "orders", "brokerName": "headgate", "queueId": 0}
]}  # fmt: skip
BEAT = {"clientID": "c", "producerDataSet": [{"groupName": "p"}], "consumerDataSet": [
    {"groupName": "group", "subscriptionDataSet": [
        {"topic": "orders", "subString": "a || b", "subVersion": 1, "expressionType": "TAG"}
    ]}
]}  # fmt: skip
BROKER = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "C", "brokerId": "0"}
TOPICS = {"topicConfigSerializeWrapper": {"topicConfigTable": {"t": {"perm": 6}}}}
FIELDS = {
    **pull_fields("orders", 0),
    **send_fields("orders"),
    **WHERE,
    **BROKER,
    "clientID": "c",
    "cluster": "C",
    "timestamp": "5",
}
BODIES = {
    RequestCode.SEND_BATCH_MESSAGE: encode_batch([BatchMember(0, b"x", {"TAGS": "a"})] * 2),
    RequestCode.HEART_BEAT: json.dumps(BEAT).encode(),
    RequestCode.LOCK_BATCH_MQ: json.dumps(LOCK).encode(),
    RequestCode.UNLOCK_BATCH_MQ: json.dumps(LOCK).encode(),
    RequestCode.CHECK_CLIENT_CONFIG: json.dumps(
        {"subscriptionData": BEAT["consumerDataSet"][0]}
    ).encode(),
    RequestCode.REGISTER_BROKER: json.dumps(TOPICS).encode(),
}


def mutated(random: Random, code: int) -> bytes:
    """Return a request of a code with other values, other bytes in its body, or in its frame."""
    fields = dict(FIELDS)
    for name in random.sample(sorted(fields), random.randint(0, MUTATIONS_MAX)):
        fields[name] = random.choice(VALUES)
    if not random.randrange(3):
        del fields[random.choice(sorted(fields))]
    body = bytearray(BODIES.get(RequestCode(code), b"body"))
    for _ in range(random.randint(0, MUTATIONS_MAX)):
        body[random.randrange(len(body))] = random.randrange(256)
    serialization = random.choice(list(Serialization))
    command = Command(
        code, fields, bytes(body), random.randrange(9), serialization=serialization
    )
    frame = bytearray(encode_frame(command))
    if not random.randrange(4):
        frame[random.randrange(4, len(frame))] = random.randrange(256)
    return bytes(frame)


async def throw(listener: Listener, frames: list[bytes]) -> None:
    """Send each frame on a connection of its own group, and read until the end."""
    reader, writer = await asyncio.open_connection(listener.host, listener.port)
    writer.write(b"".join(frames))
    writer.write_eof()
    async with asyncio.timeout(DEADLINE_S):
        with contextlib.suppress(ConnectionError):
            await reader.read(1 << 20)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def bugs(live: RunningRocketMq) -> int:
    return sum(listener.faults["bug"] for listener in live.adapter.listeners)


async def test_mutated_requests_meet_no_bug(tmp_path: Path) -> None:
    random = Random(7)
    async with running(tmp_path, pull_wait_ms_max=5) as live:
        await live.topic("orders", 2)
        await send(await live.client(), "orders", b"x", "TAGS\x01a\x02")
        tables = (BROKER_HANDLERS, NAMESERVER_HANDLERS)
        for listener, handlers in zip(live.adapter.listeners, tables, strict=True):
            for code in handlers:
                for _ in range(ROUNDS):
                    await throw(listener, [mutated(random, code) for _ in range(3)])
        assert bugs(live) == 0
        assert (await send(await live.client(), "orders", b"x")).code == 0
