"""kill -9 at random moments while messages wait, become due and are moved: each comes once.

The producers are idempotent, so that what they send again after a kill counts once too. The
topic stamps what it appends, which shows that nothing came before its time.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from tests.crash.kill_schedule import how_often, moments, small_segments
from tests.crash.load import patient_producer
from tests.support.gateway import Gateway
from tests.support.topics import create_topic

PARTITIONS: Final = 2
ACKS_BETWEEN_KILLS_MAX: Final = 800
DELAY_MS_MAX: Final = 3_000
TOGETHER_MS: Final = 500
PROGRESS_S_MAX: Final = 180
OUTSTANDING_MAX: Final = 1_000
CONFIGS: Final = {"delay.enable": "true", "message.timestamp.type": "LogAppendTime"}

pytestmark = pytest.mark.crash


class DelayedLoad:
    """A producer thread whose records wait up to ``DELAY_MS_MAX``, some of them not at all."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: set[bytes] = set()
        self.sent_count = 0
        self.failures: list[str] = []
        self._topic = topic
        self._producer = patient_producer(bootstrap)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def finish(self) -> None:
        """Send no more, and wait until all is acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PROGRESS_S_MAX) == 0
        assert self.failures == []
        assert len(self.acknowledged) == self.sent_count

    def _run(self) -> None:
        chooser = random.Random(7)
        while not self._stop.is_set():
            if len(self._producer) >= OUTSTANDING_MAX:
                self._producer.poll(0.05)
                continue
            headers: list[tuple[str, bytes]] = []
            if chooser.random() < 0.9:  # most of them wait
                due_unix_ms = int(time.time() * 1_000) + chooser.randrange(DELAY_MS_MAX)
                if chooser.random() < 0.5:  # due together with others: they wait as one
                    due_unix_ms += -due_unix_ms % TOGETHER_MS
                headers.append(("deliver-at", str(due_unix_ms).encode()))
            self._producer.produce(
                self._topic,
                b"%d-" % self.sent_count + bytes(chooser.randrange(1_000)),
                partition=self.sent_count % PARTITIONS,
                headers=headers,
                on_delivery=self._told,
            )
            self.sent_count += 1
            self._producer.poll(0)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged.add(message.value())


@how_often(6, 100)
@pytest.mark.parametrize("flush", ["group", "never"])
def test_what_waits_comes_once_after_kills(tmp_path: Path, flush: str, kills: int) -> None:
    with Gateway(tmp_path / "data", small_segments(flush, 4 << 20)) as gateway:
        topic = create_topic(gateway.bootstrap, partitions=PARTITIONS, configs=CONFIGS)
        load = DelayedLoad(gateway.bootstrap, topic)
        load.start()
        for _ in moments(
            kills, lambda: len(load.acknowledged), apart_max=ACKS_BETWEEN_KILLS_MAX
        ):
            gateway.kill()
            gateway.restart()
        load.finish()
        found = _read(gateway, topic, load.sent_count)

    came = Counter(message.value() for message in found)
    assert set(came) == load.acknowledged
    assert {value: count for value, count in came.items() if count > 1} == {}
    assert [message for message in found if _lateness_ms(message) < 0] == []


def _lateness_ms(message: Message) -> int:
    """Return by how much a message came after its time; 0 for one that did not wait."""
    headers = dict(message.headers() or ())
    appended_unix_ms: int = message.timestamp()[1]
    return appended_unix_ms - int(headers["deliver-at"]) if "deliver-at" in headers else 0


def _read(gateway: Gateway, topic: str, count: int) -> list[Message]:
    """Return what the topic has once ``count`` messages came, and nothing follows them."""
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 1,
        }
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    found: list[Message] = []

    def read_until(is_done: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PROGRESS_S_MAX
        while not is_done():
            assert time.monotonic() < deadline_s, f"{len(found)} of {count} came"
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error

    read_until(lambda: len(found) >= count)
    until_s = (
        time.monotonic() + (DELAY_MS_MAX + TOGETHER_MS) / 1_000
    )  # whatever waits is due then
    read_until(lambda: time.monotonic() > until_s)
    consumer.close()
    return found
