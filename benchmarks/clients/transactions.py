"""Producers that commit one transaction after the other; prints transactions/s and latencies."""

import argparse
import json
import threading
import time
from uuid import uuid4

from confluent_kafka import Producer

_WITHIN_S = 60.0


def main() -> None:
    """Run the producers, each in a thread; the first tenth of each is not counted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--transactions", type=int, default=500)
    parser.add_argument("--records", type=int, default=10)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=6)
    given = parser.parse_args()
    spans_ms: list[float] = []
    lock, barrier = threading.Lock(), threading.Barrier(given.producers + 1)

    def work() -> None:
        producer = Producer(
            {
                "bootstrap.servers": given.bootstrap,
                "transactional.id": uuid4().hex,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(_WITHIN_S)
        value = bytes(given.record_bytes)
        own = []
        barrier.wait()
        for _ in range(given.transactions):
            began_s = time.perf_counter()
            producer.begin_transaction()
            for number in range(given.records):
                producer.produce(given.topic, value, partition=number % given.partitions)
            producer.commit_transaction(_WITHIN_S)
            own.append((time.perf_counter() - began_s) * 1_000)
        with lock:
            spans_ms.extend(own[len(own) // 10 :])

    threads = [threading.Thread(target=work) for _ in range(given.producers)]
    for thread in threads:
        thread.start()
    barrier.wait()
    began_s = time.perf_counter()
    for thread in threads:
        thread.join()
    elapsed_s = time.perf_counter() - began_s
    spans_ms.sort()
    found = {
        "rate": given.producers * given.transactions / elapsed_s,
        "p50": spans_ms[len(spans_ms) // 2],
        "p99": spans_ms[len(spans_ms) * 99 // 100],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
