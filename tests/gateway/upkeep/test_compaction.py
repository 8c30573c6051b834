"""The cleaner: what is compacted when and how far, over storages that rewrite what is kept."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from gateway.config.settings import RetentionConfig
from gateway.errors import InvalidRecord, StorageUnavailable
from gateway.metrics import Metrics
from gateway.model import Buffer, parse_batch_header
from gateway.records.codec import NewRecord, encode_batch
from gateway.retention_holds import HolderKind
from gateway.storage import Drops, Keep, Rewritten
from gateway.upkeep.compaction import RETRY_MS, Clean
from gateway.upkeep.compaction_throttle import CompactionStopped, ReadThrottle
from gateway.upkeep.retention import Retention
from gateway.writer import Write
from tests.gateway.kernel_in_memory import outcome, running
from tests.gateway.upkeep.kernel_with_compaction import Cleaned, numbered

DAY_MS = 86_400_000


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Cleaned]:
    async with running(tmp_path) as house:
        cleaned = Cleaned(house)
        await cleaned.open()
        yield cleaned
        cleaned.compaction.stop()


async def test_the_latest_of_each_key_stays(node: Cleaned) -> None:
    partition = await node.topic()
    await node.append(partition, *numbered(b"a", 3), (b"b", b"x"), (b"a", b"last"))

    await node.compaction.run_once()

    assert node.stored(partition) == [(3, b"b", b"x"), (4, b"a", b"last")]
    assert (partition.log_start_offset, partition.high_watermark) == (0, 5)
    assert node.compaction.records_removed == 3
    kept_bytes = node.house.broker.size_bytes(partition)
    assert node.compaction.clean(partition.partition_id) == Clean(5, kept_bytes)


async def test_it_goes_on_where_it_was(node: Cleaned) -> None:
    partition = await node.topic()
    await node.append(partition, *numbered(b"a", 4), (b"b", b"x"))
    await node.compaction.run_once()
    read_bytes = node.compaction.bytes_read
    await node.compaction.run_once()
    assert (node.compaction.rounds, node.compaction.bytes_read) == (1, read_bytes)

    await node.append(partition, *numbered(b"a", 4))
    await node.house.restart()
    await node.open()
    partition = node.house.broker.partition(
        node.house.topics.get(partition.topic.name), partition.number
    )
    await node.compaction.run_once()

    assert node.stored(partition) == [(4, b"b", b"x"), (8, b"a", b"3")]
    assert node.compaction.rounds == 1


async def test_a_small_share_of_new_bytes_waits(node: Cleaned) -> None:
    partition = await node.topic(min_cleanable_dirty_ratio="0.5")
    await node.append(partition, *[(b"%d" % key, b"v") for key in range(8)])
    await node.compaction.run_once()  # all is new the first time
    assert node.compaction.rounds == 1

    await node.append(partition, *[(b"0", b"w") for _ in range(8)])
    await node.compaction.run_once()
    assert node.compaction.rounds == 1  # half of it is new, which is not more than half

    await node.append(partition, (b"0", b"x"))
    await node.compaction.run_once()
    assert node.compaction.rounds == 2
    assert node.values(partition) == [b"v"] * 7 + [b"x"]


async def test_what_is_old_does_not_wait_for_more(node: Cleaned) -> None:
    partition = await node.topic(
        min_cleanable_dirty_ratio="0.9", max_compaction_lag_ms=str(DAY_MS)
    )
    await node.append(partition, *[(b"%d" % key, b"v") for key in range(8)])
    await node.compaction.run_once()
    await node.append(partition, (b"0", b"w"))

    node.house.clock.advance(DAY_MS)
    await node.compaction.run_once()
    assert node.compaction.rounds == 1
    node.house.clock.advance(1)
    await node.compaction.run_once()
    assert node.compaction.rounds == 2


async def test_what_is_young_stays(node: Cleaned) -> None:
    partition = await node.topic(min_compaction_lag_ms="1000")
    await node.append(partition, *numbered(b"a", 3))
    node.house.clock.advance(999)
    await node.append(partition, *numbered(b"a", 2))

    await node.compaction.run_once()
    assert node.compaction.rounds == 0
    node.house.clock.advance(1)
    await node.compaction.run_once()

    assert node.values(partition) == [b"2", b"0", b"1"]


async def test_a_holder_is_not_passed(node: Cleaned) -> None:
    partition = await node.topic()
    await node.append(partition, *numbered(b"a", 6))
    node.house.broker.holders.hold(partition.partition_id, "archive", HolderKind.ARCHIVE, 3)

    await node.compaction.run_once()
    assert node.values(partition) == [b"2", b"3", b"4", b"5"]

    node.house.broker.holders.release(partition.partition_id, "archive")
    await node.compaction.run_once()
    assert node.values(partition) == [b"5"]


async def test_a_batch_that_a_holder_is_in_is_left_alone(node: Cleaned) -> None:
    partition = await node.topic()
    await node.append_batch(partition, *numbered(b"a", 2))
    await node.append_batch(partition, *numbered(b"a", 2))
    node.house.broker.holders.hold(partition.partition_id, "archive", HolderKind.ARCHIVE, 3)

    for _ in range(2):
        await node.compaction.run_once()

    assert [offset for offset, _, _ in node.stored(partition)] == [1, 2, 3]
    assert node.compaction.clean(partition.partition_id).offset == 2


@pytest.mark.parametrize("what", ["hold", "delete"])
async def test_what_happens_while_keys_are_noted_counts(node: Cleaned, what: str) -> None:
    partition = await node.topic()
    await node.append(partition, *numbered(b"a", 3))
    read = node.house.storage.read

    async def read_meanwhile(
        partition_id: int, start: int, end: int, *, bytes_max: int
    ) -> list[Buffer]:
        if what == "hold":
            node.house.broker.holders.hold(partition_id, "archive", HolderKind.ARCHIVE, 1)
        else:
            await node.house.topics.delete(partition.topic.name)
        return await read(partition_id, start, end, bytes_max=bytes_max)

    node.house.storage.read = read_meanwhile  # type: ignore[method-assign]
    await node.compaction.run_once()

    assert node.compaction.rounds == 0


async def test_a_tombstone_goes_when_readers_had_their_time(node: Cleaned) -> None:
    partition = await node.topic(delete_retention_ms="1000", min_cleanable_dirty_ratio="0")
    await node.append(partition, (b"a", b"1"), (b"a", None), (b"b", b"1"))
    await node.compaction.run_once()
    assert node.stored(partition) == [(1, b"a", None), (2, b"b", b"1")]

    node.house.clock.advance(1000)
    await node.append(partition, (b"c", b"1"))
    await node.compaction.run_once()
    assert node.stored(partition) == [(2, b"b", b"1"), (3, b"c", b"1")]


async def test_a_map_that_is_too_small_takes_more_rounds(
    node: Cleaned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upkeep.compaction.bytes_for", lambda keys: 0 * keys)  # 48 keys
    partition = await node.topic()
    for _ in range(2):
        await node.append(partition, *[(b"%d" % key, b"v") for key in range(100)])

    await node.compaction.run_once()

    assert node.compaction.rounds == 5
    assert [offset for offset, _, _ in node.stored(partition)] == list(range(100, 200))
    assert node.compaction.clean(partition.partition_id).offset == 200


async def test_the_last_batch_of_a_live_producer_stays(node: Cleaned) -> None:
    partition = await node.topic()
    broker = node.house.broker
    for sequence in range(2):
        record: NewRecord = (node.house.clock.unix_ms(), b"a", b"v", ())
        batch = encode_batch([record], producer_id=9, producer_epoch=0, base_sequence=sequence)
        write = broker.prepare(partition, batch)
        assert isinstance(write, Write)
        assert await outcome(partial(broker.append, [write])) is None
    await node.append(partition, (b"a", b"w"))

    await node.compaction.run_once()

    batches = broker.read(partition, 0, bytes_max=1 << 30) or ()
    headers = [parse_batch_header(batch) for batch in batches]
    assert [(h.base_offset, h.base_sequence, h.record_count) for h in headers] == [
        (1, 1, 0),
        (2, -1, 1),
    ]


async def test_topics_that_are_not_compacted_and_internal_ones_are_left_alone(
    node: Cleaned,
) -> None:
    other = await node.house.partition("plain")
    await node.append(other, *numbered(b"a", 3))
    state = await node.topic()
    await node.append(state, *numbered(b"a", 3))

    await node.compaction.run_once()
    await node.compaction.run_once()

    assert len(node.stored(other)) == 3
    assert node.compaction.rounds == 1  # not of its own stream either


async def test_a_deleted_topic_is_forgotten(node: Cleaned) -> None:
    partition = await node.topic()
    await node.append(partition, *numbered(b"a", 3))
    await node.compaction.run_once()
    await node.house.topics.delete(partition.topic.name)

    node.compaction.forget([partition.partition_id, 12_345])
    await node.compaction.run_once()

    assert node.compaction.clean(partition.partition_id) == Clean(0, 0)


async def test_it_runs_by_itself(node: Cleaned) -> None:
    partition = await node.topic()
    await node.append(partition, *numbered(b"a", 3))
    done = asyncio.Event()
    remember = node.compaction._remember

    async def remember_and_tell(partition_id: int, clean: Clean) -> None:
        await remember(partition_id, clean)
        done.set()

    node.compaction._remember = remember_and_tell  # type: ignore[method-assign]
    node.compaction.start()
    await asyncio.wait_for(done.wait(), timeout=30)

    assert node.values(partition) == [b"2"]
    metrics = Metrics()
    node.compaction.register_metrics(metrics)
    assert b"headgate_compaction_removed_records_total 2.0" in metrics.render()


async def test_a_stop_ends_a_round_which_then_has_changed_nothing(node: Cleaned) -> None:
    partition = await node.topic()
    await node.append(partition, *[(b"%d" % (n % 9), b"v") for n in range(300)])
    rewrite = node.house.storage.rewrite
    seen: list[Buffer] = []

    async def rewrite_until_stopped(
        partition_id: int, upto_offset: int, keep: Keep, drops: Drops | None = None
    ) -> Rewritten:
        assert drops is not None

        def keep_some(batch: Buffer) -> Buffer | None:
            seen.append(batch)
            if len(seen) == 100:
                node.compaction._pace.stopped.set()  # what stop does; here is another thread
            return keep(batch)

        return await rewrite(partition_id, upto_offset, keep_some)

    node.house.storage.rewrite = rewrite_until_stopped  # type: ignore[method-assign]
    with pytest.raises(CompactionStopped):
        await node.compaction.run_once()

    assert len(seen) == 100
    assert len(node.stored(partition)) == 300
    assert node.compaction.clean(partition.partition_id) == Clean(0, 0)


async def test_what_fails_does_not_keep_others_from_their_turn(node: Cleaned) -> None:
    bad, good = await node.topic(), await node.house.partition("b", cleanup_policy="compact")
    for partition in (bad, good):
        await node.append(partition, *numbered(b"a", 3))
    rewrite = node.house.storage.rewrite
    asked: list[int] = []

    async def rewrite_good(
        partition_id: int, upto_offset: int, keep: Keep, drops: Drops | None = None
    ) -> Rewritten:
        asked.append(partition_id)
        if partition_id == bad.partition_id and len(asked) < 3:
            raise StorageUnavailable("a batch is damaged")
        return await rewrite(partition_id, upto_offset, keep, drops)

    node.house.storage.rewrite = rewrite_good  # type: ignore[method-assign]
    await node.compaction.run_once()
    assert (node.values(good), node.compaction.failures) == ([b"2"], 1)

    await node.compaction.run_once()
    assert len(asked) == 2
    node.house.clock.advance(RETRY_MS)
    await node.compaction.run_once()
    assert node.values(bad) == [b"2"]


async def test_a_pass_takes_its_time(node: Cleaned) -> None:
    pace = ReadThrottle(node.house.clock, 1_000_000)
    batch = encode_batch([(0, b"k", bytes(2_000), ())])
    waited_s: list[float] = []
    pace.stopped.wait = waited_s.append  # type: ignore[assignment, method-assign]

    def take_turns(step_ms: int) -> None:
        waited_s.clear()
        for _ in range(10):
            node.house.clock.advance(step_ms)
            pace.wait_for(batch)

    await asyncio.to_thread(take_turns, 0)
    assert sum(waited_s) == pytest.approx(0.02, rel=0.1)
    await asyncio.to_thread(take_turns, 3)
    assert waited_s == []  # it takes longer anyway
    take_turns(0)
    assert waited_s == []  # the loop never waits


# --- producing to a compacted topic


@pytest.mark.parametrize("is_compacted", [True, False])
async def test_records_need_a_key_where_they_are_compacted(
    node: Cleaned, *, is_compacted: bool
) -> None:
    partition = await node.topic(cleanup_policy="compact" if is_compacted else "delete")
    now_unix_ms = node.house.clock.unix_ms()
    batch = encode_batch([(now_unix_ms, b"k", b"v", ()), (now_unix_ms, None, b"v", ())])

    if is_compacted:
        with pytest.raises(InvalidRecord, match="record 1 has no key"):
            node.house.broker.prepare(partition, batch)
    else:
        assert isinstance(node.house.broker.prepare(partition, batch), Write)


async def test_a_compacted_topic_may_have_an_age_too(node: Cleaned) -> None:
    partition = await node.topic(cleanup_policy="compact,delete", retention_ms="1000")
    await node.append(partition, *numbered(b"a", 3), (b"b", b"1"))
    node.house.clock.advance(1001)
    await node.append(partition, *numbered(b"a", 2))
    config = RetentionConfig(interval_ms=100)
    retention = Retention(node.house.topics, node.house.broker, node.house.clock, config)

    await node.compaction.run_once()
    await retention.run_once()

    assert node.stored(partition) == [(5, b"a", b"1")]
    assert partition.log_start_offset == 5
