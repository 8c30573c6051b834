"""A producer at a steady rate, or as fast as it can: rate and latency by window, as JSON.

Latency is from ``produce`` to the delivery report of every ``--sample``-th record, so that
measuring does not slow the loop down.
"""

import argparse
import json
import os
import statistics
import time
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

_QUEUED_MAX = 100_000
_FLUSH_S_MAX = 120
_AT_ONCE = 1_000
_ANY_PARTITION = -1  # librdkafka's RD_KAFKA_PARTITION_UA


class Window:
    """Acknowledgements within one span of time."""

    def __init__(self) -> None:
        self.count = 0
        self.delays_ms: list[float] = []

    def to_json(self, seconds: float) -> dict[str, float]:
        """Return rate and percentiles; of a window without samples only the rate."""
        found = {"rate": self.count / seconds}
        if self.delays_ms:
            ordered = sorted(self.delays_ms)
            found |= {
                "p50": statistics.median(ordered),
                "p99": ordered[int(len(ordered) * 0.99)],
            }
        return found


class SteadyRun:
    """The loop and its windows."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._topic: str = chosen.topic
        self._rate: int = chosen.rate
        self._sample: int = chosen.sample
        self._window_s: float = min(chosen.window_s, chosen.seconds)
        self._seconds: float = chosen.seconds
        self._value = os.urandom(chosen.bytes)
        self._partitions: int = chosen.partitions
        self._count = 0
        self.windows: list[Window] = []
        self.failures = 0
        self._started = 0.0
        self._producer = Producer(
            {
                "bootstrap.servers": chosen.bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "queue.buffering.max.messages": _QUEUED_MAX,
                "queue.buffering.max.kbytes": 262_144,
            }
        )

    def run(self) -> None:
        """Produce for as long as was asked."""
        producer = self._producer
        producer.list_topics(self._topic, timeout=30)
        self._started = time.monotonic()
        sent = 0
        while (now := time.monotonic()) < self._started + self._seconds:
            due = int((now - self._started) * self._rate) - sent
            sent += self._send(due if self._rate else _AT_ONCE)
            producer.poll(0.001 if self._rate else 0)
        assert producer.flush(_FLUSH_S_MAX) == 0

    def _send(self, count: int) -> int:
        for done in range(count):
            sampled = time.monotonic() if done % self._sample == 0 else None
            report = partial(self._on_delivery, sampled)
            try:
                self._producer.produce(
                    self._topic,
                    self._value,
                    partition=self._next_partition(),
                    on_delivery=report,
                )
            except BufferError:
                self._producer.poll(0.02)
                return done
        return count

    def _next_partition(self) -> int:
        """Return the next one in turn, or what stands for the client's own choice."""
        if not self._partitions:
            return _ANY_PARTITION
        self._count += 1
        return self._count % self._partitions

    def _on_delivery(
        self, sent_s: float | None, error: KafkaError | None, _message: Message
    ) -> None:
        now = time.monotonic()
        if error is not None:
            self.failures += 1
            return
        index = int((now - self._started) / self._window_s)
        while len(self.windows) <= index:
            self.windows.append(Window())
        window = self.windows[index]
        window.count += 1
        if sent_s is not None:
            window.delays_ms.append((now - sent_s) * 1_000)

    def to_json(self) -> dict[str, object]:
        """Return all windows that lie within the run, and the whole."""
        whole = Window()
        count = max(1, int(self._seconds / self._window_s))
        for window in self.windows[:count]:
            whole.count += window.count
            whole.delays_ms += window.delays_ms
        windows = [window.to_json(self._window_s) for window in self.windows[:count]]
        return {**whole.to_json(count * self._window_s), "windows": windows}


def main() -> None:
    """Measure and print {"rate", "p50", "p99", "windows"}, in msg/s and ms."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=int, default=0, help="msg/s; 0: as fast as it can")
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--window-s", type=float, default=10)
    parser.add_argument("--partitions", type=int, default=0, help="all of them, in turn")
    parser.add_argument("--sample", type=int, default=1)
    run = SteadyRun(parser.parse_args())
    run.run()
    assert not run.failures, f"{run.failures} records were not acknowledged"
    print(json.dumps(run.to_json()))


if __name__ == "__main__":
    main()
