"""Messages with a time of delivery, by Kafka: how late a consumer sees each of them.

All are sent before the first is due; their times are spread evenly over ``--over-s`` seconds.
With ``--plain`` nothing waits in the server: ``paced_batches`` sends them as plain batches when
they are due. What the same consumer sees then is what a server reaches whose delay costs nothing.

While messages come the consumer only notes when: what each of them is, it looks at in the end.
"""

import argparse
import gc
import json
import math
import subprocess
import sys
import time
import uuid
from typing import Any, Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.clients.sqs_wire import Fault
from tests.support.proc import cpu_s, resident_bytes

_HEADER: Final = "deliver-at"
_STALLED_S_MAX: Final = 30.0
_TAKEN_MAX: Final = 10_000


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return percentiles of lateness in ms, and what one waiting message costs in memory."""
    place = {"bootstrap.servers": arguments.bootstrap}
    topic = f"delayed-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(place)
    config = {"delay.enable": "false" if arguments.plain else "true"}
    made = admin.create_topics([NewTopic(topic, 1, 1, config=config)])
    made[topic].result(_STALLED_S_MAX)
    before_bytes = resident_bytes(arguments.pid)
    first_due_ms = time.time_ns() // 1_000_000 + int(arguments.lead_s * 1_000)
    started_s = time.monotonic()
    sender = None
    if arguments.plain:
        sender = _paced(arguments, topic, first_due_ms)
    else:
        _send(arguments, topic, first_due_ms)
    put_s = time.monotonic() - started_s
    held_bytes = resident_bytes(arguments.pid) - before_bytes
    if time.time_ns() // 1_000_000 > first_due_ms:
        raise Fault(f"sending took {put_s:.1f} s: give more --lead-s")
    cpu_before_s = cpu_s(arguments.pid)
    late_ms = sorted(_lateness(place, topic, arguments.messages))
    if sender is not None:
        sender.communicate(timeout=_STALLED_S_MAX)
    return {
        "messages": arguments.messages,
        "rate": arguments.messages / arguments.over_s,
        "put_rate": arguments.messages / put_s,
        "each_bytes": held_bytes / arguments.messages,
        "server_cpu_s": cpu_s(arguments.pid) - cpu_before_s,
        "early": sum(one < 0 for one in late_ms),
        **{
            f"p{part * 100:g}": late_ms[math.ceil(part * len(late_ms)) - 1]
            for part in (0.01, 0.5, 0.9, 0.99, 0.999, 1.0)
        },
    }


def _send(arguments: argparse.Namespace, topic: str, first_due_ms: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    for number in range(arguments.messages):
        due_ms = first_due_ms + int(number * arguments.over_s * 1_000 / arguments.messages)
        producer.produce(topic, b"x" * 100, headers={_HEADER: str(due_ms).encode()})
        producer.poll(0)
    if producer.flush(_STALLED_S_MAX):
        raise Fault("not all messages were taken")


def _paced(
    arguments: argparse.Namespace, topic: str, first_due_ms: int
) -> "subprocess.Popen[str]":
    """Have them sent when they are due, by a process of its own, which this returns."""
    command = [
        *(sys.executable, "-m", "benchmarks.clients.paced_batches", "--topic", topic),
        *("--port", arguments.bootstrap.rsplit(":", 1)[1]),
        *("--messages", str(arguments.messages), "--over-s", str(arguments.over_s)),
        *("--first-due-ms", str(first_due_ms)),
    ]
    sender = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert sender.stdout is not None
    if sender.stdout.readline() != "ready\n":
        raise Fault("the sender of plain batches did not start")
    return sender


def _lateness(place: dict[str, str], topic: str, count: int) -> list[float]:
    consumer = Consumer(
        {**place, "group.id": topic, "fetch.wait.max.ms": 100, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    came: list[tuple[float, list[Message]]] = []
    left = count
    gc.disable()  # its pauses, over all that has come, would be taken for the server's
    while left:
        messages = consumer.consume(_TAKEN_MAX, timeout=0.001)
        if messages:
            came.append((time.time_ns() / 1e6, messages))
            left -= len(messages)
    gc.enable()
    consumer.close()
    return [
        at_ms - int(dict(message.headers())[_HEADER])
        for at_ms, messages in came
        for message in messages
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--over-s", type=float, default=5.0)
    parser.add_argument("--lead-s", type=float, default=30.0)
    parser.add_argument("--plain", action="store_true", help="not delayed: sent when due")
    print(json.dumps(measure(parser.parse_args())))


if __name__ == "__main__":
    main()
