"""Numbered records that are easy to check."""

from confluent_kafka import Producer
from pyspark.sql import DataFrame

from pipeline.resend.endpoint import Endpoint


def produce(
    bootstrap: str,
    topic: str,
    numbers: range,
    *,
    value_bytes: int = 100,
    idempotent: bool = False,
) -> None:
    """Append ``numbers`` as the first eight digits of values; some have keys, some headers."""
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "batch.size": 100_000,
            "enable.idempotence": idempotent,
        }
    )
    for number in numbers:
        producer.produce(
            topic,
            f"{number:08d}".encode().ljust(value_bytes, b"."),
            key=f"k{number % 7}".encode() if number % 3 else None,
            headers=[("trace", f"t{number}".encode())] if number % 5 == 0 else None,
            timestamp=1_700_000_000_000 + number,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed


def record_count(bootstrap: str, topic: str) -> int:
    """Return how many records a topic has that keeps all of them."""
    return sum(Endpoint(bootstrap).ends([topic])[topic].values())


def numbers_of(frame: DataFrame) -> list[int]:
    """Return the numbers in a frame's values."""
    return sorted(int(row.value[:8]) for row in frame.select("value").collect())
