"""Key indexes are made for the topics that ask for one, and for no others."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from gateway.metrics import Metrics
from gateway.model import Buffer
from gateway.records.keys import keys_of_batch
from gateway.upkeep.key_indexer import KeyIndexer
from tests.gateway.kernel_in_memory import running


class Indexes:
    """Remembers what was wanted."""

    built_count = 3
    built_bytes = 400
    undecodable_count = 5
    memory_bytes = 6_000

    def __init__(self) -> None:
        self.wanted: list[frozenset[int]] = []

    async def index(
        self, wanted: frozenset[int], keys_of: Callable[[Buffer], Iterable[bytes]]
    ) -> int:
        assert keys_of is keys_of_batch
        self.wanted.append(wanted)
        return 1


async def test_partitions_of_topics_that_ask_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as house:
        indexes = Indexes()
        monkeypatch.setattr(house.storage, "key_indexes", indexes, raising=False)
        indexer = KeyIndexer(house.topics, house.storage)
        await house.topic("plain", 2)
        keyed = await house.topic("keyed", 3, key_index="true")

        await indexer.run_once(indexes)
        await house.topics.alter_configs(keyed.name, {"key.index": None})
        await indexer.run_once(indexes)

        assert indexes.wanted == [frozenset(keyed.partition_ids), frozenset()]


async def test_metrics_are_those_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as house:
        monkeypatch.setattr(house.storage, "key_indexes", Indexes(), raising=False)
        metrics = Metrics()
        KeyIndexer(house.topics, house.storage).register_metrics(metrics)
        text = metrics.render().decode()
        assert "headgate_key_index_files_total 3.0" in text
        assert "headgate_key_index_bytes_total 400.0" in text
        assert "headgate_key_index_undecodable_batches_total 5.0" in text


async def test_without_indexes_it_does_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        metrics = Metrics()
        indexer = KeyIndexer(house.topics, house.storage, interval_ms=1)
        indexer.register_metrics(metrics)
        indexer.start()
        indexer.stop()
        assert b"key_index" not in metrics.render()
