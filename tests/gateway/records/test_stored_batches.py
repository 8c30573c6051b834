"""Batches of the storage: damaged ones are refused, and counted once, by topic."""

from pathlib import Path

import pytest

from gateway.errors import CorruptBatch
from gateway.records.stored_batches import OTHERS, TOPICS_MAX, StoredBatches
from tests.gateway.kernel_in_memory import running
from tests.support.batches import sample_batch


async def test_a_damaged_batch_is_refused_and_counted_once(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        partition = await house.partition("t")
        stored, damaged = StoredBatches(), bytearray(sample_batch())
        damaged[-1] ^= 1

        for _ in range(2):
            with pytest.raises(CorruptBatch, match="offset 0 of t-0 is damaged"):
                stored.check(partition, damaged)

        assert stored.counts == {"t": 1}


async def test_an_intact_batch_passes(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        partition = await house.partition("t")
        stored = StoredBatches()

        stored.check(partition, sample_batch())

        assert stored.counts == {}


def test_topics_beyond_the_bound_are_counted_together() -> None:
    stored = StoredBatches()

    for number in range(TOPICS_MAX + 2):
        stored.note(f"t{number}", 0, number, 0)

    assert stored.counts[OTHERS] == 2
    assert len(stored.counts) == TOPICS_MAX + 1
