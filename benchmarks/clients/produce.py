"""A librdkafka producer as fast as one Python thread can feed it; prints its rate as JSON.

The loop does nothing but ``produce``: no callback, no poll unless the queue is full. Its
ceiling is what it reaches against librdkafka's own mock broker (``--mock``), in one process.
"""

import argparse
import json
import os
import random
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

_DISTINCT = 64
_READINGS = 1 << 18  # more than a dictionary page of Parquet holds, or zstd's window
_READING = '{"meter":"meter-%05d","at":%d,"celsius":%5.2f,"trace":"%032x"}'
_FLUSH_S_MAX = 300
_LEADER_S_MAX = 60


def main() -> None:
    """Produce and print {"seconds", "rate"}."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--keys", type=int, help="distinct keys; none by default")
    parser.add_argument("--mock", action="store_true")
    parser.add_argument(
        "--readings", action="store_true", help="values like JSON instead of random bytes"
    )
    arguments = parser.parse_args()
    settings: dict[str, object] = {
        "bootstrap.servers": arguments.bootstrap,
        "acks": "all",
        "linger.ms": 5,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 262_144,
    }
    if arguments.mock:
        settings |= {"test.mock.num.brokers": 1, "bootstrap.servers": ""}
    producer = Producer(settings)
    producer.list_topics(arguments.topic, timeout=30)
    before = 0 if arguments.mock else _kept(arguments.bootstrap, arguments.topic)
    values = (
        _readings(arguments.bytes)
        if arguments.readings
        else [os.urandom(arguments.bytes) for _ in range(_DISTINCT)]
    )
    started = time.monotonic()
    if arguments.keys:
        _feed_keyed(producer, arguments.topic, values, arguments.records, arguments.keys)
    else:
        _feed(producer, arguments.topic, values, arguments.records)
    left = producer.flush(_FLUSH_S_MAX)
    seconds = time.monotonic() - started
    assert left == 0, f"{left} records were not acknowledged"
    if not arguments.mock:
        kept = _kept(arguments.bootstrap, arguments.topic) - before
        assert kept == arguments.records, f"{kept} of {arguments.records} records are there"
    print(json.dumps({"seconds": seconds, "rate": arguments.records / seconds}))


def _readings(size_bytes: int) -> list[bytes]:
    """Return readings of 10,000 meters, one each 3 ms or so, cut or padded to a size."""
    chance = random.Random(1)
    at_unix_ms = 1_700_000_000_000
    values: list[bytes] = []
    for _ in range(_READINGS):
        at_unix_ms += chance.randrange(7)
        celsius, trace = chance.gauss(19, 3), chance.getrandbits(128)
        text = _READING % (chance.randrange(10_000), at_unix_ms, celsius, trace)
        values.append(text.encode().ljust(size_bytes)[:size_bytes])
    return values


def _kept(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counts"})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    places = [TopicPartition(topic, number) for number in partitions]
    ends = [_bounds(consumer, place) for place in places]
    consumer.close()
    return sum(high - low for low, high in ends)


def _bounds(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return a partition's offsets; of a new topic not all partitions have a leader at once."""
    until = time.monotonic() + _LEADER_S_MAX
    while True:
        try:
            low, high = consumer.get_watermark_offsets(place, timeout=30)
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return low, high


def _feed(producer: Producer, topic: str, values: list[bytes], count: int) -> None:
    produce, left = producer.produce, count
    distinct = len(values)
    while left > 0:
        try:
            for n in range(left):
                produce(topic, values[n % distinct])
        except BufferError:
            left -= n
            producer.poll(0.02)
        else:
            left = 0


def _feed_keyed(
    producer: Producer, topic: str, values: list[bytes], count: int, keys: int
) -> None:
    for n in range(count):
        while True:
            try:
                producer.produce(topic, values[n % len(values)], b"key-%d" % (n % keys))
            except BufferError:
                producer.poll(0.02)
            else:
                break


if __name__ == "__main__":
    main()
