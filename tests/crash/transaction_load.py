"""Producers of transactions and a reader of committed data, through kills of the gateway."""

import random
import threading
from collections.abc import Iterator
from itertools import count

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.transaction_history import Attempt, Outcome

PARTITIONS = 3
WITHIN_S = 60.0
ABORTED_SHARE = 0.2
TIMEOUT_MS = 30_000
QUIET = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 10_000,
    # With "rebootstrap" librdkafka 2.16 forgets a broker that it has no connection to, and waits
    # for ever for the coordinator of a group there.
    "metadata.recovery.strategy": "none",
}


class TransactionLoad:
    """Workers with a transactional id each; ``attempts`` are in order for each of them."""

    def __init__(
        self, bootstrap: str, topic: str, workers: int, *, creates: bool = True
    ) -> None:
        """``creates``: the topic, and ``<topic>-in``, are not there yet."""
        self.bootstrap = bootstrap
        self.topic = topic
        self.attempts: list[Attempt] = []
        self.offsets: dict[str, list[tuple[int, Outcome]]] = {}
        self.faults: list[BaseException] = []
        self.committed = 0
        self._stop = threading.Event()
        self._values = count()
        if creates:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            topics = [NewTopic(topic, PARTITIONS), NewTopic(f"{topic}-in", 1)]
            for future in admin.create_topics(topics).values():
                future.result(WITHIN_S)
        self._threads = [
            threading.Thread(target=self._guarded, args=(f"{topic}-{number}",))
            for number in range(workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each worker end its transaction; raise what one of them has met."""
        self._stop.set()
        for thread in self._threads:
            thread.join(3 * WITHIN_S)
        if self.faults:
            raise self.faults[0]

    def _guarded(self, name: str) -> None:
        try:
            self._work(name)
        except BaseException as fault:  # noqa: BLE001 - it is raised by ``stop``
            self.faults.append(fault)

    def _work(self, name: str) -> None:
        chooser = random.Random(name)
        self.offsets[name] = []
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": name, **QUIET})
        producer = self._producer(name)
        for number in count(1):
            if self._stop.is_set():
                break
            attempt = Attempt(name)
            self.attempts.append(attempt)
            try:
                self._run(producer, consumer, attempt, number, chooser)
            except KafkaException as error:
                if error.args[0].txn_requires_abort() and self._aborted(producer):
                    attempt.outcome = Outcome.ABORTED
                else:
                    producer = self._producer(name)
            self.offsets[name].append((number, attempt.outcome))
        consumer.close()

    def _producer(self, name: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": TIMEOUT_MS,
                **QUIET,
            }
        )
        _retried(lambda: producer.init_transactions(WITHIN_S))
        return producer

    def _run(
        self,
        producer: Producer,
        consumer: Consumer,
        attempt: Attempt,
        number: int,
        chooser: random.Random,
    ) -> None:
        producer.begin_transaction()
        for _ in range(chooser.randrange(1, 5)):
            value, partition = str(next(self._values)), chooser.randrange(PARTITIONS)
            attempt.writes.append((str(partition), value))
            producer.produce(self.topic, value, partition=partition)
        producer.flush(WITHIN_S)
        position = [TopicPartition(f"{self.topic}-in", 0, number)]
        metadata = consumer.consumer_group_metadata()
        _retried(lambda: producer.send_offsets_to_transaction(position, metadata, WITHIN_S))
        if chooser.random() < ABORTED_SHARE:
            _retried(lambda: producer.abort_transaction(WITHIN_S))
            attempt.outcome = Outcome.ABORTED
        else:
            _retried(lambda: producer.commit_transaction(WITHIN_S))
            attempt.outcome = Outcome.COMMITTED
            self.committed += 1

    def _aborted(self, producer: Producer) -> bool:
        try:
            _retried(lambda: producer.abort_transaction(WITHIN_S))
        except KafkaException:
            return False
        return True

    # --- reading

    def final(self) -> dict[str, list[str]]:
        """Return all committed values by partition, when no transaction is open."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.topic}-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                **QUIET,
            }
        )
        consumer.assign([TopicPartition(self.topic, n, 0) for n in range(PARTITIONS)])
        values: dict[str, list[str]] = {str(n): [] for n in range(PARTITIONS)}
        for partition, value in _until_ends(consumer):
            values[str(partition)].append(value)
        consumer.close()
        return values

    def committed_offset(self, name: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": name, **QUIET})
        [found] = consumer.committed([TopicPartition(f"{self.topic}-in", 0)], WITHIN_S)
        consumer.close()
        return int(found.offset)

    def wrong_offsets(self) -> list[str]:
        """Return the workers whose group has another offset than their transactions say."""
        wrong = []
        for name, ended in self.offsets.items():
            sure = [number for number, outcome in ended if outcome is Outcome.COMMITTED]
            last = sure[-1] if sure else -1001
            allowed = {last} | {
                number
                for number, outcome in ended
                if outcome is Outcome.UNKNOWN and number > last
            }
            found = self.committed_offset(name)
            if found not in allowed:
                wrong.append(f"{name}: {found}, not {sorted(allowed)}")
        return wrong


def _until_ends(consumer: Consumer) -> Iterator[tuple[int, str]]:
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(WITHIN_S)
        assert message is not None, "no end of a partition"
        if message.error() is None:
            yield message.partition(), message.value().decode()
        else:
            ended.add(message.partition())


def _retried(call: object) -> None:
    """Call again while the client says that it may be called again."""
    assert callable(call)
    for _ in range(20):
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return
    call()
