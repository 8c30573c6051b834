"""The scrub reads all batches, says which are damaged, and keeps to its rate."""

from pathlib import Path

import pytest

from gateway.errors import PolicyViolation
from gateway.upkeep.scrub import Scrub, ScrubState, _damaged
from tests.gateway.kernel_in_memory import House, running
from tests.support.batches import sample_batch


async def append(house: House, name: str, count: int) -> None:
    partition = await house.partition(name)
    for _ in range(count):
        write = house.broker.prepare(partition, bytearray(sample_batch()))
        house.broker.append([write], lambda _error: None)  # type: ignore[list-item]


async def test_a_pass_reads_every_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await append(house, "a", 3)
        await append(house, "b", 2)
        scrub = Scrub(house.topics, house.broker, 1 << 30)

        await scrub.run_once()

        assert scrub.passes == 1
        assert scrub.checked_bytes == 5 * len(sample_batch())
        assert scrub.damages == []


async def test_one_pass_at_a_time_is_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        scrub = Scrub(house.topics, house.broker, 0)
        scrub.start()
        scrub.begin(bytes_per_s=1 << 30)

        with pytest.raises(PolicyViolation):
            scrub.begin(bytes_per_s=1 << 30)
        await scrub.wait(60)

        assert (scrub.state, scrub.passes) == (ScrubState.IDLE, 1)
        scrub.stop()


def at(batch: bytes | bytearray, base_offset: int) -> bytes:
    return base_offset.to_bytes(8, "big") + bytes(batch[8:])


def test_a_pass_goes_on_behind_a_damaged_batch() -> None:
    batch = sample_batch()
    damaged = bytearray(batch)
    damaged[-1] ^= 1

    found, offset = _damaged([at(damaged, 5), at(batch, 6)], 5, 100)

    assert (found, offset) == ([5], 7)


def test_a_batch_whose_last_offset_has_changed_does_not_lead_astray() -> None:
    damaged = bytearray(sample_batch())
    damaged[25] ^= 1  # of the last offset delta

    assert _damaged([at(damaged, 5)], 5, 1_000_000_000) == ([5], 6)
