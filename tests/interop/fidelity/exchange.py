"""One gateway, all messages of ``samples`` by all clients, and what each client has received."""

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.testing.gateway_process import to_toml
from gateway.testing.ports import free_port
from tests.interop.fidelity.amqp_end import AmqpEnd
from tests.interop.fidelity.kafka_end import KafkaEnd
from tests.interop.fidelity.mqtt_end import MqttEnd
from tests.interop.fidelity.samples import (
    AMQP,
    KAFKA,
    MQTT,
    PROTOCOLS,
    SAMPLES,
    SQS,
    End,
    Seen,
    Sending,
)
from tests.interop.fidelity.sqs_end import FIFO, SqsEnd
from tests.support.sqs_gateway import SqsGateway

EXCHANGE_S_MAX: Final = 120
_FIRST, _SECOND = "shared", "sqs"
_ON_FIFO: Final = frozenset({"group", "dedup id"})
"""Properties that SQS has for FIFO queues only."""
_KAFKA_CONFIGS: Final = {'"delay.enable"': "true", '"expiry.enable"': "true"}


@dataclass(frozen=True)
class Exchanged:
    """Result. ``seen``: messages by sender, receiver and property, in order of arrival.

    ``sent_s``: time before the first message of a sender and a property.
    """

    seen: Mapping[tuple[str, str, str], Sequence[Seen]]
    sent_s: Mapping[tuple[str, str], float]


def topics_of(sender: str, copy: str) -> list[str]:
    """Return the topics that a sender's messages go to."""
    name = f"{copy}-{sender.lower()}"
    return [name, f"{name}{FIFO}"] if sender == SQS else [name]


def run(folder: Path, sent: Mapping[str, Collection[str]]) -> Exchanged:
    """Exchange all messages. ``sent``: the properties that each protocol can send."""
    plain = [
        (topic, sender)
        for sender in PROTOCOLS
        for copy in (_FIRST, _SECOND)
        for topic in topics_of(sender, copy)
    ]
    amqp_port = free_port()
    settings = {
        "adapters.amqp.bind": f"127.0.0.1:{amqp_port}",
        "adapters.mqtt.routes": to_toml(
            [{"filter": f"fidelity/{topic}/#", "topic": topic} for topic, _ in plain]
        ),
        "topics": to_toml(
            [
                {"name": topic, "configs": _KAFKA_CONFIGS if sender == KAFKA else {}}
                for topic, sender in plain
            ]
        ),
        "queues": to_toml([{"name": topic} for topic, _ in plain if not topic.endswith(FIFO)]),
    }
    with SqsGateway(folder / "data", settings) as gateway:
        ends: dict[str, End] = {
            KAFKA: KafkaEnd(gateway.bootstrap),
            MQTT: MqttEnd(gateway.mqtt_port),
            SQS: SqsEnd(
                gateway.endpoint,
                fifo=tuple(topic for topic, _ in plain if topic.endswith(FIFO)),
            ),
            AMQP: AmqpEnd(
                f"amqp://guest:guest@127.0.0.1:{amqp_port}/%2F",
                topics=(*topics_of(AMQP, _FIRST), *topics_of(AMQP, _SECOND)),
            ),
        }
        return asyncio.run(_exchange(ends, sent))


async def _exchange(ends: Mapping[str, End], sent: Mapping[str, Collection[str]]) -> Exchanged:
    async with contextlib.AsyncExitStack() as stack:
        for end in ends.values():
            await end.open()
            stack.push_async_callback(end.close)
        sendings = [
            Sending(sender, _topic(sender, name, copy), SAMPLES[name])
            for sender in PROTOCOLS
            for name in sent[sender]
            for copy in (_FIRST, _SECOND)
        ]
        counts: dict[str, Counter[str]] = {_FIRST: Counter(), _SECOND: Counter()}
        for one in sendings:
            counts[one.topic.split("-")[0]][one.topic] += len(one.samples)
        sent_s: dict[tuple[str, str], float] = {}
        async with asyncio.timeout(EXCHANGE_S_MAX), asyncio.TaskGroup() as group:
            receivings = {
                name: group.create_task(end.receive(counts[_SECOND if name == SQS else _FIRST]))
                for name, end in ends.items()
            }
            for one in sendings:
                sent_s.setdefault((one.sender, one.name), time.time())
                await ends[one.sender].send(one)
    senders = {one.topic: one.sender for one in sendings}
    seen: defaultdict[tuple[str, str, str], list[Seen]] = defaultdict(list)
    for receiver, receiving in receivings.items():
        for message in receiving.result():
            seen[senders[message.topic], receiver, message.name].append(message)
    return Exchanged(seen, sent_s)


def _topic(sender: str, name: str, copy: str) -> str:
    return topics_of(sender, copy)[-1 if name in _ON_FIFO else 0]
