"""The segment log, over many small segments and restarts, answers as the memory storage does."""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.clock import ManualClock
from gateway.model import Buffer, parse_batch_header
from gateway.storage import CompactingStorage, StorageAdapter
from gateway.testing.storage import (
    ALL,
    Host,
    append,
    delete,
    make_batch,
    make_entry,
    truncate,
)
from storage_adapters.memory import MemoryConfig, MemoryStorage
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.verify import DAMAGED, Verification
from tests.storage_adapters.settling import settle
from tests.storage_adapters.test_segment_log import new_log
from tests.support.examples import examples

PARTITIONS = 4

APPEND = st.tuples(
    st.just("append"),
    st.lists(
        st.tuples(
            st.sets(st.integers(1, PARTITIONS), min_size=1, max_size=3),
            st.integers(1, 9),
            st.sampled_from([70, 1_000, 60_000, 200_000]),
            st.integers(0, 50),
        ),
        min_size=1,
        max_size=4,
    ),
)
TRUNCATE = st.tuples(st.just("truncate"), st.integers(1, PARTITIONS), st.integers(0, 100))
DELETE = st.tuples(st.just("delete"), st.integers(1, PARTITIONS))
RESTART = st.tuples(st.sampled_from(["stop", "kill", "lose footer"]))
SETTLE = st.tuples(st.just("settle"))
REWRITE = st.tuples(
    st.just("rewrite"), st.integers(1, PARTITIONS), st.integers(0, 100), st.integers(1, 4)
)
STEPS = st.lists(
    st.one_of(APPEND, APPEND, APPEND, SETTLE, REWRITE, TRUNCATE, DELETE, RESTART), max_size=40
)


class Pair:
    """The log under test and its model, given the same steps."""

    def __init__(self, root: Path, flush: str, own_bytes: int) -> None:
        self.root = root
        self.own_bytes = own_bytes
        self.flush = flush
        self.lives = 0
        self.epoch = 1
        self.deleted: set[int] = set()
        self.log: SegmentLog = self._new_log()
        self.model = MemoryStorage(MemoryConfig(), data_dir=root, clock=ManualClock())

    def _new_log(self) -> SegmentLog:
        return new_log(
            self.root / str(self.lives),
            flush=self.flush,
            footers_max=8,
            extents_max=2,
            settle_own_bytes=self.own_bytes,
        )

    async def each(self, step: Callable[[CompactingStorage], Awaitable[object]]) -> None:
        await step(self.log)
        await step(self.model)

    async def open(self) -> None:
        await self.log.open(Host())
        await self.model.open(Host())

    async def append(self, entries: list[tuple[set[int], int, int, int]]) -> None:
        made = []
        ends = {i: self.model.bounds(i).end for i in range(1, PARTITIONS + 1)}
        for partition_ids, count, size_bytes, timestamp_unix_ms in entries:
            targets = [(i, ends[i]) for i in sorted(partition_ids - self.deleted)]
            if targets:
                made.append(
                    make_entry(
                        targets,
                        count,
                        size_bytes=size_bytes,
                        epoch=self.epoch,
                        timestamp_unix_ms=timestamp_unix_ms,
                    )
                )
            for partition_id, _ in targets:
                ends[partition_id] += count
        await self.each(lambda storage: append(storage, *made))

    async def truncate(self, partition_id: int, percent: int) -> None:
        bounds = self.model.bounds(partition_id)
        offset = bounds.start + (bounds.end - bounds.start) * percent // 100
        await self.each(lambda storage: truncate(storage, partition_id, offset))

    async def delete(self, partition_id: int) -> None:
        self.deleted.add(partition_id)
        await self.each(lambda storage: delete(storage, partition_id))

    async def settle(self) -> None:
        self.log.release_scans_before(self.log.next_sequence)
        for _ in range(20):  # So that other steps happen while it goes on, or after it.
            await asyncio.sleep(0)

    async def rewrite(self, partition_id: int, percent: int, divisor: int) -> None:
        """Keep every so many batches; the offsets of some of them shrink to their last."""
        start = self.log.bounds(partition_id).start
        reach = max(start, self.log.settled_offset(partition_id))
        upto = start + (reach - start) * percent // 100

        def keep(batch: Buffer) -> Buffer | None:
            header = parse_batch_header(batch)
            if header.base_offset % divisor:
                return None if header.base_offset % 2 else batch
            return make_batch(
                header.base_offset,
                header.last_offset + 1 - header.base_offset,
                size_bytes=80,
                epoch=header.leader_epoch,
                timestamp_unix_ms=header.max_timestamp_unix_ms,
            )

        if upto > start:
            await self.each(lambda storage: storage.rewrite(partition_id, upto, keep))

    async def restart(self, how: str) -> None:
        """Go on with a copy of the files: as they are (a kill), or after a clean stop."""
        before = self.root / str(self.lives)
        if how == "stop":
            await self.log.close()
        self.lives += 1
        self.epoch += 1
        # In the thread that closes and removes segments, so that no file goes while it is copied.
        after = self.root / str(self.lives)
        async with self.log._settler._lock:
            await asyncio.get_running_loop().run_in_executor(
                self.log._closer if how != "stop" else None, shutil.copytree, before, after
            )
        if how == "kill":
            await self.log.close()
        if how == "lose footer":
            await self.log.close()
            for path in sorted((self.root / str(self.lives) / "wal").iterdir())[:1]:
                with path.open("r+b") as file:
                    file.truncate(path.stat().st_size - 1)
        shutil.rmtree(before)
        findings = list(Verification(after).run())
        assert not [found for found in findings if found.kind == DAMAGED]
        if how == "stop":
            assert findings == []
        self.log = self._new_log()
        await self.log.open(Host())

    async def compare(self) -> None:
        for partition_id in range(1, PARTITIONS + 1):
            assert await self._answers(self.log, partition_id) == await self._answers(
                self.model, partition_id
            )

    async def _answers(self, storage: StorageAdapter, partition_id: int) -> list[object]:
        start, end = storage.bounds(partition_id)
        middle = (start + end) // 2
        reads = [(0, ALL, ALL), (middle, end, 1), (middle, end, 150_000), (start, middle, ALL)]
        answers: list[object] = [(start, end), storage.size_bytes(partition_id)]
        for first, last, bytes_max in reads:
            batches = await storage.read(partition_id, first, last, bytes_max=bytes_max)
            answers.append(_data(batches))
        answers += [
            storage.offset_for_size(partition_id, size)
            for size in (0, 1_000, 300_000)
            if partition_id not in self.deleted
        ]
        answers += [storage.end_offset_for_epoch(partition_id, e) for e in range(self.epoch)]
        answers += [
            await storage.base_offset_for_time(partition_id, time) for time in (0, 20, 40, 51)
        ]
        return answers


def _data(batches: list[Buffer]) -> list[bytes]:
    return [bytes(batch) for batch in batches]


async def run(steps: list[tuple[str, ...]], flush: str, own_bytes: int, root: Path) -> None:
    pair = Pair(root, flush, own_bytes)
    await pair.open()
    for step, *arguments in steps:
        if step in {"stop", "kill", "lose footer"}:
            await pair.restart(step)
        else:
            await getattr(pair, step)(*arguments)
    await pair.compare()
    await settle(pair.log)
    await pair.compare()
    await pair.restart("stop")
    await pair.compare()
    await pair.log.close()


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=STEPS,
    flush=st.sampled_from(["group", "never", "interval"]),
    own_bytes=st.sampled_from([4_096, 500_000, 1_000_000_000]),
)
def test_log_and_model_agree(steps: list[tuple[str, ...]], flush: str, own_bytes: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="headgate-model-"))
    try:
        asyncio.run(run(steps, flush, own_bytes, root))
    finally:
        shutil.rmtree(root)
