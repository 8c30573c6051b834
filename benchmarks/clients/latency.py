"""End-to-end latency: this process sends at a steady rate, a child of it receives.

Each record carries the monotonic time at which it was given to ``produce``; all processes of a
machine share that clock. Prints percentiles in ms as JSON.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

_STAMP = struct.Struct(">q")
_QUIET_S_MAX = 30


def send(bootstrap: str, topic: str, *, rate: int, count: int) -> float:
    """Produce at a steady rate; return the rate that was kept."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, timeout=30)
    filler = os.urandom(1024 - _STAMP.size)
    interval_ns = 1_000_000_000 // rate
    started_ns = time.monotonic_ns()
    for n in range(count):
        due_ns = started_ns + n * interval_ns
        while (now_ns := time.monotonic_ns()) < due_ns:
            time.sleep((due_ns - now_ns) / 1e9)
        producer.produce(topic, _STAMP.pack(time.monotonic_ns()) + filler)
        producer.poll(0)
    kept = count / ((time.monotonic_ns() - started_ns) / 1e9)
    assert producer.flush(60) == 0
    return kept


def receive(bootstrap: str, topic: str, *, partitions: int, count: int) -> None:
    """Consume from the end; say when reading has begun, then print what was seen."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
        }
    )
    for n in range(partitions):
        consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30)
    consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    print("reading", flush=True)
    delays_ns: list[int] = []
    while len(delays_ns) < count:
        message = consumer.poll(_QUIET_S_MAX)
        assert message is not None, f"only {len(delays_ns)} records came"
        assert message.error() is None, message.error()
        delays_ns.append(time.monotonic_ns() - _STAMP.unpack_from(message.value())[0])
    consumer.close()
    # The first second is a warm-up of both ends.
    delays_ns = sorted(delays_ns[count // 10 :])
    at = lambda share: delays_ns[int(len(delays_ns) * share)] / 1e6  # noqa: E731 - one line
    print(json.dumps({"p50": at(0.5), "p99": at(0.99), "p999": at(0.999)}))


def main() -> None:
    """Measure and print {"p50", "p99", "p999", "rate"}, in ms and msg/s."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--receive", action="store_true")
    chosen = parser.parse_args()
    if chosen.receive:
        receive(
            chosen.bootstrap, chosen.topic, partitions=chosen.partitions, count=chosen.records
        )
        return
    command = [sys.executable, "-m", "benchmarks.clients.latency", *sys.argv[1:], "--receive"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "reading\n"
        kept = send(chosen.bootstrap, chosen.topic, rate=chosen.rate, count=chosen.records)
        found = json.loads(child.stdout.readline())
    print(json.dumps({**found, "rate": kept}))


if __name__ == "__main__":
    main()
