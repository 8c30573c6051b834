"""Transactions of partitions when their snapshots are refused, as on a full disk."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest

from gateway.config.settings import BrokerConfig
from gateway.errors import StorageFull, StorageUnavailable
from gateway.model import TopicName
from gateway.producers import ProducerStates, open_producers
from gateway.transaction_states import TransactionStates
from tests.gateway.kernel_in_memory import House, outcome, running
from tests.gateway.transactional_producer import TransactionalProducer


class States:
    """States of producers and of transactions, loaded together."""

    @classmethod
    async def open(cls, house: House) -> "States":
        found = cls()
        broker, topics, clock = house.broker, house.topics, house.clock
        found.transactions = await TransactionStates.open(broker, topics, clock)
        stream = await open_producers(broker, topics, clock)
        found.producers = ProducerStates(
            stream, broker, topics, clock, BrokerConfig(), transactions=found.transactions
        )
        await found.producers.load()
        return found

    transactions: TransactionStates
    producers: ProducerStates


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path) as house:
        yield house


def refuse(*_args: object, **_kwargs: object) -> NoReturn:
    raise StorageFull("full")


async def test_log_is_replayed_from_the_last_snapshot_of_both(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = await States.open(house)
    partition = await house.partition("t")
    producer = TransactionalProducer(house, partition, 1)
    await producer.write()
    await producer.end(is_commit=False)
    await producer.write()
    with monkeypatch.context() as patch:
        patch.setattr(states.transactions._stream, "put", refuse)
        states.producers._snapshot()
        await outcome(house.broker.after_pending)
    states.producers.stop()

    await house.restart()
    again = await States.open(house)
    again.producers.stop()

    partition = house.broker.partition(house.topics.get(TopicName("default", "t")), 0)
    assert (partition.stable_end, partition.high_watermark) == (2, 3)
    assert house.values(partition) == []


async def test_first_transactional_batch_needs_room_for_its_state(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = await States.open(house)
    partition = await house.partition("t")
    producer = TransactionalProducer(house, partition, 1)
    with monkeypatch.context() as patch:
        patch.setattr(states.transactions._stream, "put", refuse)
        with pytest.raises(StorageUnavailable):
            producer.prepare()
    assert partition.transactions is None

    await producer.write()
    assert partition.stable_end == 0
    states.producers.stop()
