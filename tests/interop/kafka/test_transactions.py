"""Transactions of stock clients: what is committed is read, what is aborted is not."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

PARTITIONS = 3
WITHIN_S = 30.0


class Topics:
    """Topic of a test, the one that it reads from, and names of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"txn-{uuid4().hex[:8]}"
        self.source = f"{self.name}-source"
        self.group = f"{self.name}-group"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        made = admin.create_topics(
            [
                NewTopic(self.name, PARTITIONS),
                NewTopic(self.source, 1),
            ]
        )
        for future in made.values():
            future.result(WITHIN_S)

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )

    def read(self, isolation: str = "read_committed") -> list[str]:
        """Return the values of all partitions, up to their ends, sorted."""
        consumer = self._consumer(isolation)
        consumer.assign([TopicPartition(self.name, n, 0) for n in range(PARTITIONS)])
        values, ended = [], 0
        while ended < PARTITIONS:
            message = consumer.poll(WITHIN_S)
            assert message is not None, "no end of a partition"
            if message.error() is not None:
                ended += 1
            else:
                values.append(message.value().decode())
        consumer.close()
        return sorted(values)

    def committed(self) -> int:
        """Return the group's offset in the source topic."""
        consumer = self._consumer("read_committed")
        [found] = consumer.committed([TopicPartition(self.source, 0)], WITHIN_S)
        consumer.close()
        return int(found.offset)


@pytest.fixture
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


def confluent(topics: Topics, transactional_id: str, **settings: object) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": topics.bootstrap,
            "transactional.id": transactional_id,
            **settings,
        }
    )
    producer.init_transactions(WITHIN_S)
    return producer


def run_confluent(topics: Topics) -> None:
    """Commit, abort and commit again, each with an offset of the source."""
    producer = confluent(topics, topics.name)
    consumer = topics._consumer("read_committed")
    for number, is_commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topics.name, f"{number}-{partition}", partition=partition)
        producer.flush(WITHIN_S)  # an abort purges what is not sent
        producer.send_offsets_to_transaction(
            [TopicPartition(topics.source, 0, 10 + number)],
            consumer.consumer_group_metadata(),
            WITHIN_S,
        )
        if is_commit:
            producer.commit_transaction(WITHIN_S)
        else:
            producer.abort_transaction(WITHIN_S)
    consumer.close()


def run_aiokafka(topics: Topics) -> None:
    async def work() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=topics.bootstrap, transactional_id=topics.name
        )
        await producer.start()
        for number, is_commit in enumerate((True, False, True)):
            await producer.begin_transaction()
            for partition in range(PARTITIONS):
                await producer.send_and_wait(
                    topics.name, f"{number}-{partition}".encode(), partition=partition
                )
            await producer.send_offsets_to_transaction(
                {AioPartition(topics.source, 0): 10 + number}, topics.group
            )
            if is_commit:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        await producer.stop()

    asyncio.run(work())


def run_kafka_python(topics: Topics) -> None:
    producer = KafkaProducer(bootstrap_servers=topics.bootstrap, transactional_id=topics.name)
    producer.init_transactions()
    for number, is_commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            value = f"{number}-{partition}".encode()
            producer.send(topics.name, value, partition=partition).get(WITHIN_S)
        producer.send_offsets_to_transaction(
            {PythonPartition(topics.source, 0): OffsetAndMetadata(10 + number, "", -1)},
            topics.group,
        )
        if is_commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


@pytest.mark.parametrize("run", [run_confluent, run_aiokafka, run_kafka_python])
def test_committed_records_and_offsets_are_seen_and_aborted_ones_are_not(
    topics: Topics, run: Callable[[Topics], None]
) -> None:
    run(topics)

    committed = sorted(f"{number}-{n}" for number in (0, 2) for n in range(PARTITIONS))
    assert topics.read() == committed
    assert topics.read("read_uncommitted") == sorted(
        f"{number}-{n}" for number in range(3) for n in range(PARTITIONS)
    )
    assert topics.committed() == 12


def test_open_transaction_holds_back_what_follows_it(topics: Topics) -> None:
    slow, fast = confluent(topics, f"{topics.name}-a"), confluent(topics, f"{topics.name}-b")
    slow.begin_transaction()
    slow.produce(topics.name, "slow", partition=0)
    slow.flush(WITHIN_S)
    fast.begin_transaction()
    fast.produce(topics.name, "fast", partition=0)
    fast.commit_transaction(WITHIN_S)

    before = topics.read()
    slow.commit_transaction(WITHIN_S)

    assert before == []
    assert topics.read() == ["fast", "slow"]


def test_zombie_is_fenced_and_its_transaction_aborted(topics: Topics) -> None:
    zombie = confluent(topics, topics.name)
    zombie.begin_transaction()
    zombie.produce(topics.name, "zombie", partition=0)
    zombie.flush(WITHIN_S)

    heir = confluent(topics, topics.name)
    with pytest.raises(KafkaException, match="fenced"):
        zombie.commit_transaction(WITHIN_S)
    heir.begin_transaction()
    heir.produce(topics.name, "heir", partition=0)
    heir.commit_transaction(WITHIN_S)

    assert topics.read() == ["heir"]


def test_aiokafka_zombie_is_fenced(topics: Topics) -> None:
    async def work() -> None:
        zombie = AIOKafkaProducer(
            bootstrap_servers=topics.bootstrap, transactional_id=topics.name
        )
        await zombie.start()
        await zombie.begin_transaction()
        await zombie.send_and_wait(topics.name, b"zombie", partition=0)
        await asyncio.to_thread(confluent, topics, topics.name)
        with pytest.raises(ProducerFenced):
            await zombie.commit_transaction()
        with contextlib.suppress(ProducerFenced):
            await zombie.stop()

    asyncio.run(work())

    assert topics.read() == []


def test_transaction_that_is_never_ended_is_aborted(topics: Topics) -> None:
    producer = confluent(topics, topics.name, **{"transaction.timeout.ms": 1_000})
    producer.begin_transaction()
    producer.produce(topics.name, "lost", partition=0)
    producer.flush(WITHIN_S)
    other = Producer({"bootstrap.servers": topics.bootstrap})
    other.produce(topics.name, "plain", partition=0)
    other.flush(WITHIN_S)

    consumer = topics._consumer("read_committed")
    consumer.assign([TopicPartition(topics.name, 0, 0)])
    found = next(_messages(consumer))
    consumer.close()

    assert found == "plain"


def _messages(consumer: Consumer) -> Iterator[str]:
    while True:
        message = consumer.poll(WITHIN_S)
        assert message is not None, "no message"
        if message.error() is None:
            yield message.value().decode()
