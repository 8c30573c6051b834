"""A librdkafka consumer that reads a topic from its start; prints its rate as JSON."""

import argparse
import json
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

_QUIET_S_MAX = 30


def main() -> None:
    """Consume and print {"seconds", "rate"}; time runs from the first fetch on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    arguments = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 65_536,
            "queued.min.messages": 100_000,
        }
    )
    places = [
        TopicPartition(arguments.topic, n, OFFSET_BEGINNING)
        for n in range(arguments.partitions)
    ]
    consumer.list_topics(arguments.topic, timeout=30)
    started = time.monotonic()
    consumer.assign(places)
    left = arguments.records
    while left > 0:
        messages = consumer.consume(min(left, 10_000), _QUIET_S_MAX)
        assert messages, f"{left} records did not come"
        left -= len(messages)
    seconds = time.monotonic() - started
    consumer.close()
    print(json.dumps({"seconds": seconds, "rate": arguments.records / seconds}))


if __name__ == "__main__":
    main()
