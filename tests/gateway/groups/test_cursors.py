"""Committed offsets: what was committed last, after a restart too, until it is removed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from gateway.errors import CoordinatorLoading, StorageFull
from gateway.groups.cursor_keys import group_key, parse_group_key
from gateway.groups.cursors import Commit, CursorManager
from gateway.groups.model import GroupName
from gateway.sharded_stream import ShardedStream
from gateway.topics.manager import Topic
from tests.gateway.kernel_in_memory import GROUPS, House, outcome, running

GROUP = GroupName("default", "readers")


@pytest.fixture(params=[1, 64], ids="{} shards".format)
async def house(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    async with running(tmp_path, bytes_max=2 << 20, shard_count=request.param) as one:
        yield one


async def opened(house: House) -> CursorManager:
    return await CursorManager.open(house.broker, house.topics, house.clock, GROUPS)


async def commit(cursors: CursorManager, group: GroupName, *commits: Commit) -> None:
    assert await outcome(lambda on_done: cursors.commit(group, commits, on_done)) is None


def offsets(cursors: CursorManager, group: GroupName = GROUP) -> dict[int, int]:
    return {cursor.number: cursor.offset for cursor in cursors.fetch_all(group)}


async def test_all_fields_survive_a_restart(house: House) -> None:
    topic = await house.topic("t", 2)
    cursors = await opened(house)
    committed_unix_ms = house.clock.unix_ms()
    await commit(cursors, GROUP, Commit(topic.uuid, 1, 42, 7, "mañana", 99))

    await house.restart()
    house.clock.advance(1_000)
    cursor = (await opened(house)).fetch(GROUP, topic.uuid, 1)

    assert cursor is not None
    assert (cursor.offset, cursor.leader_epoch, cursor.metadata) == (42, 7, "mañana")
    assert (cursor.committed_unix_ms, cursor.expires_unix_ms) == (committed_unix_ms, 99)


async def test_the_last_commit_counts(house: House) -> None:
    topic = await house.topic("t", 3)
    cursors = await opened(house)

    await commit(cursors, GROUP, Commit(topic.uuid, 0, 1), Commit(topic.uuid, 2, 1))
    await commit(cursors, GROUP, Commit(topic.uuid, 2, 9))

    assert offsets(cursors) == {0: 1, 2: 9}
    assert cursors.fetch(GROUP, topic.uuid, 1) is None


async def test_groups_and_namespaces_are_apart(house: House) -> None:
    topic = await house.topic("t")
    cursors = await opened(house)
    other = GroupName("vhost", "readers")

    await commit(cursors, GROUP, Commit(topic.uuid, 0, 1))
    await commit(cursors, other, Commit(topic.uuid, 0, 2))

    assert (offsets(cursors), offsets(cursors, other)) == ({0: 1}, {0: 2})
    assert set(cursors.groups()) == {GROUP, other}


async def test_positions_in_a_deleted_topic_go(house: House) -> None:
    kept, gone = await house.topic("kept"), await house.topic("gone")
    cursors = await opened(house)
    await commit(cursors, GROUP, Commit(kept.uuid, 0, 1), Commit(gone.uuid, 0, 2))
    await commit(cursors, GroupName("default", "only-gone"), Commit(gone.uuid, 0, 3))

    await house.topics.delete(gone.name)

    assert [cursor.topic_uuid for cursor in cursors.fetch_all(GROUP)] == [kept.uuid]
    assert set(cursors.groups()) == {GROUP}
    again = await house.topic("gone")
    assert cursors.fetch(GROUP, again.uuid, 0) is None


async def test_positions_of_a_topic_that_went_unseen_go_at_the_start(house: House) -> None:
    topic = await house.topic("t")
    cursors = await opened(house)
    await commit(
        cursors, GROUP, Commit(topic.uuid, 0, 1), *(Commit(uuid4(), 0, n) for n in range(1_500))
    )

    await house.restart()
    cursors = await opened(house)

    assert cursors.count == 1
    assert offsets(cursors) == {0: 1}
    await commit(cursors, GROUP, Commit(topic.uuid, 0, 2))
    await house.restart()
    assert len((await opened(house)).stream.values) == 1


async def test_positions_can_be_removed(house: House) -> None:
    topic = await house.topic("t", 3)
    cursors = await opened(house)
    await commit(cursors, GROUP, *(Commit(topic.uuid, n, n) for n in range(3)))

    await outcome(lambda on_done: cursors.delete(GROUP, [(topic.uuid, 1)], on_done))
    assert offsets(cursors) == {0: 0, 2: 2}
    await outcome(lambda on_done: cursors.delete_group(GROUP, [], on_done))

    assert not cursors.has(GROUP)
    await house.restart()
    assert offsets(await opened(house)) == {}


async def test_a_refused_commit_leaves_no_trace(house: House) -> None:
    topic = await house.topic("t", 2)
    cursors = await opened(house)
    await commit(cursors, GROUP, Commit(topic.uuid, 0, 1, -1, "x" * 1_500_000))
    stranger = GroupName("default", "stranger")
    large = Commit(topic.uuid, 1, 2, -1, "x" * 600_000)

    outcomes = await asyncio.gather(
        outcome(lambda on_done: cursors.commit(GROUP, [large], on_done)),
        outcome(lambda on_done: cursors.commit(stranger, [large], on_done)),
    )

    assert [type(error) for error in outcomes] == [StorageFull, StorageFull]
    assert offsets(cursors) == {0: 1}
    assert set(cursors.groups()) == {GROUP}


async def test_a_refused_removal_leaves_all_as_it_was(house: House) -> None:
    topic: Topic = await house.topic("t")
    cursors = await opened(house)
    await commit(cursors, GROUP, Commit(topic.uuid, 0, 1))
    await outcome(
        lambda on_done: cursors.stream.put(
            [(b"\x03filler", bytes(2_090_000))], on_done, shard=0
        )
    )
    ballast = [(topic.uuid, number) for number in range(1_000)]

    error = await outcome(lambda on_done: cursors.delete(GROUP, ballast, on_done))

    assert isinstance(error, StorageFull)
    assert offsets(cursors) == {0: 1}


async def test_before_it_is_loaded_it_says_so(house: House) -> None:
    stream = await ShardedStream.open("__cursors", house.broker, house.topics, house.clock)
    cursors = CursorManager(
        stream, house.clock, GROUPS, is_topic=lambda _: True, shards=house.broker.shards
    )

    with pytest.raises(CoordinatorLoading):
        cursors.fetch_all(GROUP)
    with pytest.raises(CoordinatorLoading):
        cursors.commit(GROUP, [Commit(uuid4(), 0, 1)], lambda _: None)


def test_group_keys_are_read_as_they_were_written() -> None:
    for group in (GROUP, GroupName("", ""), GroupName("näme", "g" * 40_000)):
        key = b"?" + group_key(group)
        assert parse_group_key(key + b"rest", 1) == (group, len(key))
