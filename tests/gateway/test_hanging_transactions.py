"""Metrics say what is open, since when, and how far readers are held back."""

from pathlib import Path

from gateway.hanging_transactions import register_metrics
from gateway.metrics import Metrics
from tests.gateway.kernel_in_memory import running
from tests.gateway.transactional_producer import TransactionalProducer


async def test_a_hanging_transaction_is_seen(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        metrics = Metrics()
        register_metrics(metrics, house.broker.writer.transactional, house.clock)
        partition = await house.partition("t")
        house.broker.writer.transactional.add(partition)
        producer = TransactionalProducer(house, partition, 1)
        await producer.write(count=3)
        house.clock.advance(90_000)

        text = metrics.render().decode()
        assert "headgate_partition_transactions_open 1" in text
        assert "headgate_partition_transaction_oldest_seconds 90" in text
        assert 'headgate_stable_end_lag{topic="t"} 3' in text

        await producer.end(is_commit=False)
        text = metrics.render().decode()
        assert "headgate_partition_transactions_open 0" in text
        assert "headgate_partition_transaction_oldest_seconds 0" in text
        assert 'headgate_stable_end_lag{topic="t"}' not in text
        assert "headgate_partition_transactions_aborted 1" in text
