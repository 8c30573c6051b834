"""Large batches of Kafka producers: decoded beside the loop, delivered as any other."""

import threading
from pathlib import Path
from typing import Any

import pytest

from adapters.mqtt import mapping
from adapters.mqtt.records import foreign_batches
from adapters.mqtt.records.batch_reading import BatchReading
from adapters.mqtt.records.record_kinds import CORRUPT_BATCH
from gateway.model import BatchHeader
from gateway.records import decoding_cost
from tests.adapters.mqtt.restartable_node import (
    RestartableNode,
    numbered,
    payloads,
    restartable_node,
)

LARGE = 200  # records; a batch of so many is large in these tests


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record counts of the batches that were decoded in the loop's thread."""
    found: list[int] = []
    loop_thread = threading.current_thread()

    def noted(data: bytes, header: BatchHeader, *args: Any) -> BatchReading:
        if threading.current_thread() is loop_thread:
            found.append(header.record_count)
        return BatchReading(data, header, *args)

    monkeypatch.setattr(mapping, "BatchReading", noted)
    monkeypatch.setattr(decoding_cost, "LOOP_WORK_MAX", LARGE - 1)
    monkeypatch.setattr(foreign_batches, "RUNS_HANDED_OUT_MAX", 7)
    return found


def produce(
    one: RestartableNode, values: list[bytes], *, topics: int = 1, compressed: bool
) -> None:
    records = [(b"t/%d" % (at % topics), value) for at, value in enumerate(values)]
    one.produce(records, compressed=compressed)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_live_subscriber_gets_them_in_order(
    tmp_path: Path, on_loop: list[int], *, compressed: bool, qos: int
) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s")
        await subscriber.subscribe(("t/#", qos))
        publisher = await one.client("p")
        await publisher.publish("t/0", numbered(5))
        produce(one, numbered(LARGE, start=5), compressed=compressed)
        produce(one, numbered(3, start=5 + LARGE), compressed=False)
        produce(one, numbered(LARGE, start=8 + LARGE), compressed=compressed)
        await publisher.publish("t/0", numbered(5, start=8 + 2 * LARGE))
        found = await subscriber.take(13 + 2 * LARGE)
        assert payloads(found) == numbered(13 + 2 * LARGE)
        await subscriber.silent()
        await one.delivered()
    assert max(on_loop) < LARGE


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_session_that_was_away_gets_them(
    tmp_path: Path, on_loop: list[int], *, compressed: bool
) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t/#", 1))
        await subscriber.leave()
        produce(one, numbered(LARGE), topics=9, compressed=compressed)
        produce(one, numbered(2, start=LARGE), compressed=False)
        back = await one.client("s", kept=True)
        found = await back.take(LARGE + 2)
        assert sorted(payloads(found)) == sorted(numbered(LARGE + 2))
        await back.silent()
    assert max(on_loop) < LARGE


async def test_many_runs_are_handed_out_over_several_turns(
    tmp_path: Path, on_loop: list[int]
) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s")
        await subscriber.subscribe(("t/1", 1), ("t/0", 0))
        produce(one, numbered(LARGE), topics=2, compressed=True)
        found = await subscriber.take(LARGE)
        assert sorted(payloads(found)) == sorted(numbered(LARGE))
        await one.delivered()
    assert on_loop == []


async def test_a_corrupt_one_is_counted_and_passed(tmp_path: Path, on_loop: list[int]) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t/#", 1))
        await subscriber.leave()
        watcher = await one.client("w")
        await watcher.subscribe(("t/#", 0))
        one.produce(
            [(b"t/0", value) for value in numbered(LARGE)], compressed=True, garbled=True
        )
        produce(one, [b"after"], compressed=False)
        assert payloads(await watcher.take(1)) == [b"after"]
        back = await one.client("s", kept=True)
        assert payloads(await back.take(1)) == [b"after"]
        [feed] = one.adapter.node.feeds
        assert feed._skipped[CORRUPT_BATCH] >= 1
    assert max(on_loop) < LARGE


async def test_a_topic_that_goes_meanwhile_ends_it(tmp_path: Path, on_loop: list[int]) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s")
        await subscriber.subscribe(("other", 0))
        produce(one, numbered(LARGE), compressed=True)
        await one.kernel.topics.delete(one.partition().topic.name)
        await subscriber.silent()
    assert on_loop == []
