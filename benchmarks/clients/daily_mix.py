"""A day's mix in a short time: two large topics, many small ones, one of keyed updates.

Creates the topics and produces until so many MiB of values are acknowledged; prints JSON.
"""

import argparse
import json
import os
import random
import time
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

LARGE: Final = ("orders", "clicks")
SMALL: Final = tuple(f"sensor-{number}" for number in range(100))
COMPACTED: Final = "profiles"
KEYS: Final = 10_000
# Shares of the bytes: 70 % in large topics, 20 % in a hundred small ones, 10 % updates.
SHARES: Final = {
    **dict.fromkeys(LARGE, 35.0),
    **dict.fromkeys(SMALL, 20 / len(SMALL)),
    COMPACTED: 10.0,
}
RECORD_BYTES: Final = 1_000
_CREATED_S_MAX: Final = 120
_FLUSH_S_MAX: Final = 300


def create(bootstrap: str) -> None:
    """Make the topics."""
    compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5"}
    topics = [NewTopic(name, 6, 1) for name in LARGE]
    topics += [NewTopic(name, 1, 1) for name in SMALL]
    topics.append(NewTopic(COMPACTED, 1, 1, config=compact))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(topics, request_timeout=_CREATED_S_MAX).values():
        future.result(_CREATED_S_MAX)


def produce(bootstrap: str, count: int) -> float:
    """Produce that many records; return the seconds."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    chooser = random.Random("a day")
    names = list(SHARES)
    weights = list(SHARES.values())
    value = os.urandom(RECORD_BYTES)
    started = time.monotonic()
    for name in chooser.choices(names, weights, k=count):
        key = b"%d" % chooser.randrange(KEYS) if name == COMPACTED else None
        while True:
            try:
                producer.produce(name, value, key)
            except BufferError:
                producer.poll(0.02)
            else:
                break
        producer.poll(0)
    left = producer.flush(_FLUSH_S_MAX)
    assert left == 0, f"{left} records were not acknowledged"
    return time.monotonic() - started


def main() -> None:
    """Produce the mix and print {"records", "bytes", "seconds"}."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("--records", type=int, required=True)
    chosen = parser.parse_args()
    create(chosen.bootstrap)
    seconds = produce(chosen.bootstrap, chosen.records)
    size_bytes = chosen.records * RECORD_BYTES
    print(json.dumps({"records": chosen.records, "bytes": size_bytes, "seconds": seconds}))


if __name__ == "__main__":
    main()
