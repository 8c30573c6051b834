"""Archive holds: retention waits for the group that ``archive.hold`` names, and for no other."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from gateway.config.settings import RetentionConfig
from gateway.errors import PolicyViolation, StorageFull
from gateway.groups.cursors import Commit, CursorManager
from gateway.groups.model import GroupName
from gateway.partition import Partition
from gateway.records.codec import encode_batch
from gateway.retention_holds import HOLDS_MAX, Hold, HolderKind
from gateway.topics.declared import forget_partitions
from gateway.topics.manager import Topic
from gateway.upkeep.archive_holds import ArchiveHolds
from gateway.upkeep.retention import Retention
from gateway.writer import Write
from tests.gateway.kernel_in_memory import GROUPS, House, outcome, running

DAY_MS = 86_400_000
LAKE = GroupName("default", "lake")


class ArchivedNode:
    """A house with cursors, archive holds and retention, in the order of a start."""

    retention: Retention
    cursors: CursorManager

    def __init__(self, house: House) -> None:
        self.house = house

    async def open(self) -> None:
        house = self.house
        self.cursors = await CursorManager.open(house.broker, house.topics, house.clock, GROUPS)
        ArchiveHolds(house.broker, house.topics, self.cursors).start()
        config = RetentionConfig(interval_ms=100)
        self.retention = Retention(house.topics, house.broker, house.clock, config)
        forgetters = [house.broker.holders.forget]
        house.topics.on_deleted.append(partial(forget_partitions, forgetters))

    async def restart(self) -> None:
        await self.house.restart()
        await self.open()

    async def topic(self, partitions: int = 1, **configs: str) -> Topic:
        return await self.house.topic("orders", partitions, **configs)

    def partition(self, topic: Topic, number: int = 0) -> Partition:
        return self.house.broker.partition(topic, number)

    def write(self, topic: Topic, number: int = 0, *, size_bytes: int = 100) -> Write:
        record = (self.house.clock.unix_ms(), b"key", bytes(size_bytes), ())
        write = self.house.broker.prepare(self.partition(topic, number), encode_batch([record]))
        assert isinstance(write, Write)
        return write

    async def append(self, topic: Topic, count: int, number: int = 0) -> None:
        for _ in range(count):
            write = self.write(topic, number)
            assert await outcome(partial(self.house.broker.append, [write])) is None

    async def commit(self, topic: Topic, *offsets: int, group: GroupName = LAKE) -> None:
        commits = [Commit(topic.uuid, number, offset) for number, offset in enumerate(offsets)]
        assert await outcome(partial(self.cursors.commit, group, commits)) is None

    async def alter(self, topic: Topic, **configs: str | None) -> None:
        changes = {key.replace("_", "."): value for key, value in configs.items()}
        await self.house.topics.alter_configs(topic.name, changes)

    async def start_later(self, topic: Topic, number: int = 0) -> int:
        """Let everything become too old; return where the log begins then."""
        self.house.clock.advance(2 * DAY_MS)
        await self.retention.run_once()
        await outcome(self.house.broker.after_pending)
        return self.house.storage.bounds(topic.partition_ids[number]).start

    def held(self, topic: Topic) -> list[int | None]:
        """Return where each partition is held."""
        return [self.house.broker.holders.lowest(one) for one in topic.partition_ids]

    def holds(self, topic: Topic) -> Sequence[Hold]:
        return self.house.broker.holders.of(topic.partition_ids[0])


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ArchivedNode]:
    async with running(tmp_path, bytes_max=4 << 20) as house:
        one = ArchivedNode(house)
        await one.open()
        yield one


async def test_retention_stops_where_the_group_is(node: ArchivedNode) -> None:
    topic = await node.topic(archive_hold="lake", retention_ms=str(DAY_MS))
    await node.append(topic, 10)
    assert await node.start_later(topic) == 0, "the group is not there yet"

    await node.commit(topic, 4)
    assert await node.start_later(topic) == 4
    assert node.holds(topic) == [Hold("archive:lake", HolderKind.ARCHIVE, 4)]

    await node.commit(topic, 10)
    assert await node.start_later(topic) == 10


async def test_other_groups_and_topics_hold_nothing(node: ArchivedNode) -> None:
    topic = await node.topic(archive_hold="lake", retention_ms=str(DAY_MS))
    other = await node.house.topic("other", retention_ms=str(DAY_MS))
    await node.append(topic, 10)
    await node.append(other, 10)

    await node.commit(topic, 7, group=GroupName("default", "readers"))
    await node.commit(topic, 7, group=GroupName("vhost", "lake"))
    await node.commit(other, 3)

    assert await node.start_later(topic) == 0
    assert await node.start_later(other) == 10
    assert node.held(other) == [None]


async def test_a_hold_is_there_again_after_a_restart(node: ArchivedNode) -> None:
    topic = await node.topic(2, archive_hold="lake", retention_ms=str(DAY_MS))
    await node.append(topic, 10)
    await node.append(topic, 10, number=1)
    await node.commit(topic, 4)

    await node.restart()

    assert node.held(topic) == [4, 0]
    assert [await node.start_later(topic, number) for number in (0, 1)] == [4, 0]
    await node.commit(topic, 9, 9)
    assert [await node.start_later(topic, number) for number in (0, 1)] == [9, 9]


async def test_removed_offsets_hold_what_is_still_there(node: ArchivedNode) -> None:
    topic = await node.topic(2, archive_hold="lake", retention_ms=str(DAY_MS))
    await node.append(topic, 10)
    await node.append(topic, 10, number=1)
    await node.commit(topic, 4, 5)
    await node.start_later(topic)
    await node.commit(topic, 8, 9)

    await outcome(partial(node.cursors.delete, LAKE, [(topic.uuid, 0)]))
    assert node.held(topic) == [4, 9]
    await outcome(partial(node.cursors.delete_group, LAKE, []))
    assert node.held(topic) == [4, 5]


async def test_the_config_counts_as_it_is_changed(node: ArchivedNode) -> None:
    topic = await node.topic(retention_ms=str(DAY_MS))
    await node.append(topic, 10)
    await node.commit(topic, 4)
    assert node.held(topic) == [None]

    await node.alter(topic, archive_hold="lake")
    assert node.held(topic) == [4]
    await node.alter(topic, archive_hold="other-lake")
    assert [hold.name for hold in node.holds(topic)] == ["archive:other-lake"]
    assert node.held(topic) == [0]
    await node.commit(topic, 6)
    assert node.held(topic) == [0], "who was named before counts no more"

    await node.alter(topic, archive_hold=None)
    assert node.held(topic) == [None]
    assert not node.cursors.watchers
    assert await node.start_later(topic) == 10


async def test_partitions_that_are_added_are_held(node: ArchivedNode) -> None:
    topic = await node.topic(archive_hold="lake", retention_ms=str(DAY_MS))

    await node.house.topics.add_partitions(topic.name, 2)
    await node.append(topic, 10, number=1)

    assert await node.start_later(topic, 1) == 0
    await node.commit(topic, 0, 10)
    assert await node.start_later(topic, 1) == 10


async def test_a_deleted_topic_is_held_by_nobody(node: ArchivedNode) -> None:
    topic = await node.topic(archive_hold="lake")
    other = await node.house.topic("other", archive_hold="lake")
    await node.commit(topic, 0)

    await node.house.topics.delete(topic.name)
    await outcome(node.house.broker.after_pending)
    assert node.held(topic) == [None]
    assert len(node.house.broker.holders) == 1

    await node.commit(other, 3)
    assert node.held(other) == [3]
    await node.house.topics.delete(other.name)
    assert not node.cursors.watchers


async def test_a_commit_that_is_refused_moves_nothing(node: ArchivedNode) -> None:
    topic = await node.topic(archive_hold="lake")
    await node.append(topic, 10)
    await node.commit(topic, 4)
    big = "x" * (5 << 20)

    error = await outcome(
        partial(node.cursors.commit, LAKE, [Commit(topic.uuid, 0, 9, metadata=big)])
    )

    assert isinstance(error, StorageFull)
    assert node.held(topic) == [4]


async def test_a_commit_for_a_partition_that_is_not_there_holds_nothing(
    node: ArchivedNode,
) -> None:
    topic = await node.topic(archive_hold="lake")

    await node.commit(topic, 0, 5)

    assert node.held(topic) == [0]


async def test_the_archive_finds_room_beside_any_number_of_holders(node: ArchivedNode) -> None:
    topic = await node.topic()
    for number in range(HOLDS_MAX):
        node.house.broker.holders.hold(
            topic.partition_ids[0], f"group-{number}", HolderKind.QUEUE, 5
        )

    await node.alter(topic, archive_hold="lake")

    assert node.held(topic) == [0]


async def test_what_was_deleted_is_kept_by_no_archive(node: ArchivedNode) -> None:
    topic = await node.topic(
        archive_hold="lake", retention_ms=str(DAY_MS), hold_bytes_max="1000"
    )
    await node.append(topic, 10)
    await node.start_later(topic)
    with pytest.raises(PolicyViolation, match="archive:lake"):
        node.write(topic)

    partition = node.partition(topic)
    await outcome(partial(node.house.broker.truncate_before, partition, 9))

    assert isinstance(node.write(topic), Write)
