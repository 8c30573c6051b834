"""Compaction against a model: whatever happens, the latest record of each key survives."""

import asyncio
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.partition import Partition
from gateway.retention_holds import HolderKind
from tests.gateway.kernel_in_memory import outcome, running
from tests.gateway.upkeep.kernel_with_compaction import Cleaned
from tests.support.examples import examples


class Stored(NamedTuple):
    """A record that was appended."""

    offset: int
    key: bytes
    value: bytes | None


class Life:
    """A compacted topic and what was appended to it; each step is checked."""

    def __init__(self, node: Cleaned, partition: Partition) -> None:
        self.node = node
        self.partition = partition
        self.appended: list[Stored] = []
        self.truncated_to = 0
        self.cleaned_before = 0

    async def append(self, key: bytes, value: bytes | None) -> None:
        self.appended.append(Stored(len(self.appended), key, value))
        await self.node.append(self.partition, (key, value))

    async def compact(self) -> None:
        await self.node.compaction.run_once()

    async def wait(self) -> None:
        self.node.house.clock.advance(1_000)

    async def restart(self) -> None:
        await self.node.house.restart()
        await self.node.open()
        topic = self.node.house.topics.get(self.partition.topic.name)
        self.partition = self.node.house.broker.partition(topic, 0)

    async def hold(self, share: float) -> None:
        self.node.house.broker.holders.hold(
            self.partition.partition_id,
            "archive",
            HolderKind.ARCHIVE,
            int(share * len(self.appended)),
        )

    async def truncate(self, share: float) -> None:
        self.truncated_to = max(self.truncated_to, int(share * len(self.appended)))
        await outcome(
            partial(self.node.house.broker.truncate_before, self.partition, self.truncated_to)
        )

    def check(self) -> None:
        """Check that all records were appended, in order, and that each key's latest is there."""
        found = [Stored._make(row) for row in self.node.stored(self.partition)]
        live = self.appended[self.truncated_to :]
        clean = self.node.compaction.clean(self.partition.partition_id)
        latest = {record.key: record.offset for record in live}
        assert [r for r in found if r.offset >= self.truncated_to] == [
            record for record in live if record in set(found)
        ]
        for record in live:
            is_new = record.offset >= clean.offset
            is_latest = latest[record.key] == record.offset and record.value is not None
            assert record in found or not (is_new or is_latest)
        lowest = self.node.house.broker.holders.lowest(self.partition.partition_id)
        assert lowest is None or clean.offset <= max(lowest, self.cleaned_before)
        self.cleaned_before = clean.offset


numbers = st.integers(0, 99).map(lambda number: b"%d" % number)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.sampled_from([b"a", b"b", b"c", b"d"]),
            st.none() | st.binary(max_size=3),
        ),
        st.tuples(st.just("append"), numbers, st.just(b"v")),
        st.sampled_from([("compact",), ("wait",), ("restart",)]),
        st.tuples(st.sampled_from(["hold", "truncate"]), st.floats(0, 1)),
    ),
    max_size=60,
)


@settings(max_examples=examples(40), deadline=None)
@given(steps)
def test_the_latest_of_each_key_survives_whatever_happens(
    taken: list[tuple[str, Any]],
) -> None:
    async def live() -> None:
        with TemporaryDirectory() as folder:
            async with running(Path(folder)) as house:
                node = Cleaned(house)
                await node.open()
                partition = await node.topic(
                    delete_retention_ms="1500", min_cleanable_dirty_ratio="0"
                )
                life = Life(node, partition)
                for name, *arguments in taken:
                    await getattr(life, name)(*arguments)
                    life.check()

    asyncio.run(live())
