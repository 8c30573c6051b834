"""Fetch responses are small while producers append."""

from pathlib import Path

from adapters.kafka.node.fetch_pacing import BESIDE_APPENDS_BYTES, FetchPacing
from gateway.writer import Write
from tests.gateway.kernel_in_memory import outcome, running
from tests.support.batches import sample_batch

MUCH = 10 * BESIDE_APPENDS_BYTES


async def test_an_answer_after_an_append_is_small_and_the_next_is_not(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        partition = await house.partition("t")
        pacing = FetchPacing(house.broker.writer)
        pacing.bytes_max(MUCH)
        assert pacing.bytes_max(MUCH) == MUCH
        write = house.broker.prepare(partition, sample_batch())
        assert isinstance(write, Write)
        await outcome(lambda on_done: house.broker.append([write], on_done))
        assert pacing.bytes_max(MUCH) == BESIDE_APPENDS_BYTES
        assert pacing.bytes_max(MUCH) == MUCH


async def test_who_asks_for_less_gets_less(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        pacing = FetchPacing(house.broker.writer)
        assert pacing.bytes_max(1) == 1
