"""Load that remembers what was acknowledged, so that it can be looked for afterwards."""

import os
import random
import threading
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.history import History, Operation, Outcome

_OUTSTANDING_MAX: Final = 2_000
_FLUSH_S_MAX: Final = 90.0
_QUIET_S_MAX: Final = 120.0

_SOON_BACK: Final = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "log_level": 1,
}

Place = tuple[int, int]
"""(partition, offset)"""


def patient_producer(bootstrap: str, *, idempotent: bool = True) -> Producer:
    """Return a producer that waits out any number of restarts; compressed when idempotent."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 1,
            "message.timeout.ms": 120_000,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            **_SOON_BACK,
            "compression.type": "lz4" if idempotent else "none",
        }
    )


class Load:
    """A producer thread that writes numbered records for as long as it is left to."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        idempotent: bool,
        name: str,
        history: History | None = None,
    ) -> None:
        self.topic = topic
        self.name = name
        self.acknowledged: dict[bytes, Place] = {}
        self.sent_count = 0
        self.failures: list[str] = []
        self._partitions = partitions
        self._history = history
        self._sends: dict[bytes, Operation] = {}  # not yet answered
        self._producer = patient_producer(bootstrap, idempotent=idempotent)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def finish(self) -> None:
        """Stop writing and wait until everything that was sent is acknowledged."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(_FLUSH_S_MAX)
        assert left == 0, f"{self.name}: {left} records unacknowledged after {_FLUSH_S_MAX} s"
        assert not self.failures, f"{len(self.failures)} failed: {self.failures[0]}"

    def _run(self) -> None:
        chooser = random.Random(self.name)
        filler = os.urandom(2_000)
        while not self._stop.is_set():
            if len(self._producer) >= _OUTSTANDING_MAX:
                self._producer.poll(0.05)
                continue
            value = b"%s-%d-" % (self.name.encode(), self.sent_count)
            value += filler[: chooser.randrange(len(filler))]
            partition = self.sent_count % self._partitions
            if self._history is not None:
                where = partition_name(partition)
                self._sends[value] = self._history.send(self.name, where, value)
            self._producer.produce(
                self.topic, value, partition=partition, on_delivery=self._told
            )
            self.sent_count += 1
            self._producer.poll(0)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(f"{self.name}: {error}")
            return
        self.acknowledged[message.value()] = (message.partition(), message.offset())
        if self._history is not None:
            send = self._sends.pop(message.value())
            self._history.end(send, Outcome.OK, offset=message.offset())


class GroupReader:
    """A group member that commits after every run and remembers each commit that succeeded."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, history: History | None = None
    ) -> None:
        self.committed: dict[int, int] = {}
        self._group = group
        self._history = history
        self._rewinds = 0
        self.failures: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                **_SOON_BACK,
            }
        )
        self._consumer.subscribe([topic])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def finish(self) -> None:
        """Leave the group."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()
        assert not self.failures, self.failures[:3]

    def _run(self) -> None:
        expected: dict[int, int] = {}
        while not self._stop.is_set():
            messages = [m for m in self._consumer.consume(500, 0.2) if m.error() is None]
            for message in messages:
                self._check_order(expected, message)
            if messages:
                self._commit(expected)

    def _check_order(self, expected: dict[int, int], message: Message) -> None:
        # A rebalance takes it back to what it committed; forwards it never jumps.
        partition, offset = message.partition(), message.offset()
        if offset > expected.get(partition, 0):
            self.failures.append(f"{partition}: {offset} after {expected.get(partition)}")
        self._rewinds += offset < expected.get(partition, 0)
        expected[partition] = offset + 1
        if self._history is not None:
            name = f"{self._group}/{self._rewinds}"
            where = partition_name(partition)
            self._history.take(name, where, message.value(), offset=offset)

    def _commit(self, expected: dict[int, int]) -> None:
        held = {place.partition for place in self._consumer.assignment()}
        topic = self._consumer.assignment()[0].topic if held else ""
        offsets = [TopicPartition(topic, n, at) for n, at in expected.items() if n in held]
        try:
            for place in self._consumer.commit(offsets=offsets, asynchronous=False) or []:
                if place.error is None:
                    self.committed[place.partition] = place.offset
        except KafkaException:
            return  # the gateway is down, or the group rebalances: nothing was promised


def committed(bootstrap: str, topic: str, group: str, partitions: int) -> dict[int, int]:
    """Return what the group has committed, asked from outside of it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 1})
    places = [TopicPartition(topic, n) for n in range(partitions)]
    found = {
        place.partition: place.offset
        for place in consumer.committed(places, timeout=_QUIET_S_MAX)
    }
    consumer.close()
    return {partition: offset for partition, offset in found.items() if offset >= 0}


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[Place, bytes]:
    """Return every record of a topic by its place."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 1,
        }
    )
    ends = {n: _bounds(consumer, TopicPartition(topic, n)) for n in range(partitions)}
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
    left = sum(high - low for low, high in ends.values())
    found: dict[Place, bytes] = {}
    while left > 0:
        messages = consumer.consume(min(left, 10_000), _QUIET_S_MAX)
        assert messages, f"{left} records of {ends} did not come"
        for message in messages:
            error = message.error()
            assert error is None, error
            found[message.partition(), message.offset()] = message.value()
        left -= len(messages)
    consumer.close()
    return found


def _bounds(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return first and next offset of a partition.

    librdkafka lets go of the address it began with once it knows the broker there; what was asked
    by that moment fails in the client itself.
    """
    while True:
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(place, timeout=_QUIET_S_MAX)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._DESTROY_BROKER:
                raise
        else:
            return found


def check_commits(
    bootstrap: str, topic: str, group: str, promised: Mapping[int, int], moment: str
) -> None:
    """No partition's committed offset is below what the group was promised."""
    kept = committed(bootstrap, topic, group, max(promised) + 1) if promised else {}
    lost = {n: at for n, at in promised.items() if kept.get(n, -1) < at}
    assert not lost, f"{moment}: commits {lost} are gone, {kept} are there"


def check_kept(load: Load, stored: dict[Place, bytes]) -> None:
    """Every acknowledged record is where its acknowledgement said."""
    wrong = [place for value, place in load.acknowledged.items() if stored.get(place) != value]
    assert not wrong, f"{load.name}: {len(wrong)} acknowledged records lost: {wrong[:5]}"


def record_all(history: History, stored: Mapping[Place, bytes]) -> None:
    """Record what ``read_all`` has read as the polls of one consumer."""
    for (partition, offset), value in sorted(stored.items()):
        history.take("reader", partition_name(partition), value, offset=offset)


def partition_name(partition: int) -> str:
    """Return a partition's name in a history."""
    return f"partition {partition}"


def check_dense(stored: dict[Place, bytes], partitions: int) -> None:
    """Offsets of each partition are 0, 1, 2, ... without a hole."""
    for partition in range(partitions):
        offsets = sorted(offset for number, offset in stored if number == partition)
        assert offsets == list(range(len(offsets))), f"partition {partition} has holes"


def check_once(load: Load, stored: dict[Place, bytes]) -> None:
    """Each of an idempotent producer's records is stored once, in the order of sending."""
    prefix = load.name.encode() + b"-"
    mine = {place: value for place, value in stored.items() if value.startswith(prefix)}
    assert len(mine) == load.sent_count
    assert len(set(mine.values())) == load.sent_count
    numbers: dict[int, list[int]] = {}
    for (partition, _offset), value in sorted(mine.items()):
        numbers.setdefault(partition, []).append(int(value.split(b"-")[1]))
    assert all(found == sorted(found) for found in numbers.values()), "order changed"


def count_of(*loads: Load) -> Callable[[], int]:
    """Return a function that says how many records of a load are acknowledged: of the last one.

    Kills that came as soon as the others got on would leave a client behind that was about to
    connect again, for so long that its messages time out.
    """
    return lambda: min(len(load.acknowledged) for load in loads)
