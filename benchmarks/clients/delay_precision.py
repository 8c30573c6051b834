"""Messages with a time of delivery, by Kafka: how late each of them is appended, and seen.

All are sent before the first is due; their times are spread evenly over ``--over-s`` seconds, in
the order in which they are sent, or ``--shuffled``. With ``--plain`` nothing waits in the server:
``paced_batches`` sends them as plain batches when they are due. What the same consumer sees then
is what a server reaches whose delay costs nothing.

Two moments of each message are held against its time: ``appended`` is the time that the log stamps
it with (whole milliseconds, before the sync), ``seen`` is when the consumer's ``consume`` returns
it (sync, fetch and client are in it). While messages come the consumer only notes when: what each
of them is, it looks at in the end.
"""

import argparse
import gc
import json
import math
import random
import subprocess
import sys
import time
import uuid
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.clients.sqs_wire import SqsFault
from tests.support.process_usage import cpu_s, resident_bytes

_HEADER: Final = "deliver-at"
_STALLED_S_MAX: Final = 20.0
_TAKEN_MAX: Final = 10_000
_BEFORE_DUE_MS: Final = 400  # the server makes ready from then on: that counts as work
_CONFIG: Final = {"message.timestamp.type": "LogAppendTime"}
_SEED: Final = 4


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return percentiles of lateness in ms, and what one message costs in memory and time."""
    place = {"bootstrap.servers": arguments.bootstrap}
    topic = f"delayed-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(place)
    config = {**_CONFIG, "delay.enable": "false" if arguments.plain else "true"}
    made = admin.create_topics([NewTopic(topic, 1, 1, config=config)])
    made[topic].result(_STALLED_S_MAX)
    before_bytes = resident_bytes(arguments.pid)
    before_cpu_s = cpu_s(arguments.pid)
    first_due_ms = time.time_ns() // 1_000_000 + int(arguments.lead_s * 1_000)
    started_s = time.monotonic()
    sender = None
    if arguments.plain:
        sender = _paced(arguments, topic, first_due_ms)
    else:
        _send(arguments, topic, first_due_ms)
    put_s = time.monotonic() - started_s
    put_cpu_s = cpu_s(arguments.pid) - before_cpu_s
    held_bytes = resident_bytes(arguments.pid) - before_bytes
    if time.time_ns() // 1_000_000 > first_due_ms - _BEFORE_DUE_MS:
        raise SqsFault(f"sending took {put_s:.1f} s: give more --lead-s")
    try:
        came, due_cpu_s = _watch(place, topic, arguments, first_due_ms)
    finally:
        if sender is not None:
            sender.kill()
            sender.communicate()
    messages = [(at_ms, message) for at_ms, some in came for message in some]
    dues_ms = [int(dict(message.headers())[_HEADER]) for _, message in messages]
    count = arguments.messages
    return {
        "messages": count,
        "rate": count / arguments.over_s,
        "put_rate": count / put_s,
        "put_us": put_cpu_s / count * 1e6,
        "due_us": due_cpu_s / count * 1e6,
        "each_bytes": held_bytes / count,
        "seen": _percentiles(
            [at_ms - due_ms for (at_ms, _), due_ms in zip(messages, dues_ms, strict=True)]
        ),
        "appended": _percentiles(
            [
                message.timestamp()[1] - due_ms
                for (_, message), due_ms in zip(messages, dues_ms, strict=True)
            ]
        ),
    }


def _percentiles(late_ms: list[float]) -> dict[str, float]:
    late_ms.sort()
    found = {
        f"p{part * 100:g}": late_ms[math.ceil(part * len(late_ms)) - 1]
        for part in (0.01, 0.5, 0.9, 0.99, 0.999, 1.0)
    }
    return {**found, "early": sum(one < 0 for one in late_ms)}


def _send(arguments: argparse.Namespace, topic: str, first_due_ms: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    numbers = list(range(arguments.messages))
    if arguments.shuffled:
        random.Random(_SEED).shuffle(numbers)
    for number in numbers:
        due_ms = first_due_ms + int(number * arguments.over_s * 1_000 / arguments.messages)
        producer.produce(topic, b"x" * 100, headers={_HEADER: str(due_ms).encode()})
        producer.poll(0)
    if producer.flush(max(arguments.lead_s, 1.0)):
        raise SqsFault(f"not all messages were taken within {arguments.lead_s} s")


def _paced(
    arguments: argparse.Namespace, topic: str, first_due_ms: int
) -> "subprocess.Popen[str]":
    """Start and return a process that sends them when they are due."""
    command = [
        *(sys.executable, "-m", "benchmarks.clients.paced_batches", "--topic", topic),
        *("--port", arguments.bootstrap.rsplit(":", 1)[1]),
        *("--messages", str(arguments.messages), "--over-s", str(arguments.over_s)),
        *("--first-due-ms", str(first_due_ms)),
    ]
    sender = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert sender.stdout is not None
    if sender.stdout.readline() != "ready\n":
        raise SqsFault("the sender of plain batches did not start")
    return sender


def _watch(
    place: dict[str, str], topic: str, arguments: argparse.Namespace, first_due_ms: int
) -> tuple[list[tuple[float, list[Message]]], float]:
    """Return what came, when, and the server's processor seconds from when it was due."""
    consumer = Consumer(
        {**place, "group.id": topic, "fetch.wait.max.ms": 100, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    came: list[tuple[float, list[Message]]] = []
    before_s = cpu_s(arguments.pid)
    while time.time_ns() / 1e6 < first_due_ms - _BEFORE_DUE_MS:
        if consumer.consume(1, timeout=0.01):
            raise SqsFault("a message came before any was due")
        before_s = cpu_s(arguments.pid)
    left = arguments.messages
    last_ms = first_due_ms + arguments.over_s * 1_000
    gc.disable()  # its pauses, over all that has come, would be taken for the server's
    while left:
        messages = consumer.consume(_TAKEN_MAX, timeout=0.001)
        at_ms = time.time_ns() / 1e6
        if messages:
            came.append((at_ms, messages))
            left -= len(messages)
        elif at_ms > max(last_ms, came[-1][0] if came else 0) + _STALLED_S_MAX * 1_000:
            raise SqsFault(f"{left} of {arguments.messages} messages did not come")
    gc.enable()
    due_cpu_s = cpu_s(arguments.pid) - before_s
    consumer.close()
    for _, messages in came:
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
    return came, due_cpu_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--over-s", type=float, default=5.0)
    parser.add_argument("--lead-s", type=float, default=30.0)
    parser.add_argument("--plain", action="store_true", help="not delayed: sent when due")
    parser.add_argument(
        "--shuffled",
        action="store_true",
        help="sent in an order that is not that of their times",
    )
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
