"""Keyed state in a partition for each shard: where keys lie, and how they move to their shards."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway import sharded_stream
from gateway.coalescer import Coalescer
from gateway.errors import StorageFull, StorageUnavailable
from gateway.model import TopicName
from gateway.sharded_stream import MOVED_PER_APPEND_MAX, ShardedStream
from gateway.slots import shard_of_key
from gateway.storage import OnDone
from gateway.streams import Item
from tests.gateway.kernel_in_memory import House, outcome, running
from tests.support.waiting import until

SHARDS = 64
KEYS = [b"key %d" % n for n in range(2 * MOVED_PER_APPEND_MAX)]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with running(tmp_path, bytes_max=4 << 20, shard_count=SHARDS) as one:
        yield one


async def opened(house: House, coalescer: Coalescer | None = None) -> ShardedStream:
    stream = await ShardedStream.open(
        "__cursors", house.broker, house.topics, house.clock, coalescer=coalescer
    )
    await stream.load()
    return stream


async def put(stream: ShardedStream, *items: Item, shard: int | None = None) -> None:
    assert await outcome(lambda done: stream.put(items, done, shard=shard)) is None


async def restarted(house: House, shard_count: int) -> ShardedStream:
    house.shard_count = shard_count
    await house.restart()
    return await opened(house)


def places(stream: ShardedStream) -> dict[bytes, list[int]]:
    """Return the partitions that have each key."""
    found: dict[bytes, list[int]] = {}
    for number, one in enumerate(stream.partitions):
        for key in one.values:
            found.setdefault(key, []).append(number)
    return found


async def test_keys_lie_in_the_partition_of_their_shard(house: House) -> None:
    stream = await opened(house)

    await put(stream, *((key, b"v") for key in KEYS))

    topic = house.topics.get(TopicName("default", "__cursors"))
    assert len(topic.partition_ids) == SHARDS
    assert places(stream) == {key: [shard_of_key(key, SHARDS)] for key in KEYS}


async def test_a_put_over_many_shards_is_one_append(house: House) -> None:
    coalescer = Coalescer(house.broker, reserved=True)
    stream = await opened(house, coalescer)

    await put(stream, *((key, b"v") for key in KEYS[:50]))

    assert coalescer.rounds_appended == 1


async def test_a_refused_put_over_many_shards_is_undone_in_all(house: House) -> None:
    stream = await opened(house)
    told: list[Item] = []
    stream.on_undone = told.extend
    await put(stream, (KEYS[0], b"old"), (b"filler", bytes(4_170_000)))
    items = [(key, b"new") for key in KEYS]

    error = await outcome(lambda done: stream.put(items, done))

    assert isinstance(error, StorageFull)
    assert dict(stream.values) == {KEYS[0]: b"old", b"filler": bytes(4_170_000)}
    assert {key for key, _ in told} == set(KEYS)


async def test_a_key_has_a_value_in_one_shard_only(house: House) -> None:
    coalescer = Coalescer(house.broker, reserved=True)
    stream = await opened(house, coalescer)
    await put(stream, (b"a", b"1"), shard=7)

    await put(stream, (b"a", b"2"), shard=9)

    assert places(stream) == {b"a": [9]}
    assert coalescer.rounds_appended == 2  # the removal is in the append of the new value
    await put(stream, (b"a", None))
    assert places(stream) == {}
    assert not stream.values


async def test_of_a_key_that_comes_twice_in_a_put_the_last_counts(house: House) -> None:
    stream = await opened(house)

    await put(stream, (b"a", b"1"), (b"a", None), (b"b", None), (b"b", b"2"))

    assert dict(stream.values) == {b"b": b"2"}
    assert dict((await restarted(house, SHARDS)).values) == {b"b": b"2"}


@pytest.mark.parametrize("path", [(1, 64), (64, 1), (1, 64, 1), (64, 8, 64)])
async def test_keys_move_when_the_number_of_shards_changes(
    house: House, path: tuple[int, ...]
) -> None:
    stream = await restarted(house, path[0])
    await put(stream, *((key, b"%d" % n) for n, key in enumerate(KEYS)))
    before = dict(stream.values)

    for shard_count in path[1:]:
        stream = await restarted(house, shard_count)
        assert stream.moved > 0
        assert dict(stream.values) == before
        assert places(stream) == {key: [shard_of_key(key, shard_count)] for key in KEYS}

    assert (await restarted(house, path[-1])).moved == 0


@pytest.mark.parametrize("appends", [0, 1, 2])
@pytest.mark.parametrize("then", [1, 64])
async def test_a_move_that_is_cut_short_goes_on_at_the_next_load(
    house: House, appends: int, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage stops at each step; then the node starts, with the new number or the old."""
    stream = await restarted(house, 1)
    await put(stream, *((key, b"%d" % n) for n, key in enumerate(KEYS)))
    before = dict(stream.values)
    whole_put = ShardedStream.put
    left = appends

    def stopping(self: ShardedStream, items: list[Item], on_done: OnDone) -> None:
        nonlocal left
        if left == 0:
            raise StorageUnavailable("killed")
        left -= 1
        whole_put(self, items, on_done)

    with monkeypatch.context() as patch:
        patch.setattr(ShardedStream, "put", stopping)
        if appends < 2:
            with pytest.raises(StorageUnavailable, match="killed"):
                await restarted(house, 64)
        else:
            await restarted(house, 64)

    again = await restarted(house, then)

    assert dict(again.values) == before
    assert places(again) == {key: [shard_of_key(key, then)] for key in KEYS}


async def test_a_key_that_is_removed_while_others_move_stays_removed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own shard is served while the shard that still has it is being opened."""
    house.shard_count = 1
    await house.restart()
    keys = KEYS[:20]
    await put(await opened(house), *((key, b"v") for key in keys))
    monkeypatch.setattr(sharded_stream, "MOVED_PER_APPEND_MAX", 1)
    house.shard_count = SHARDS
    await house.restart()
    stream = await ShardedStream.open("__cursors", house.broker, house.topics, house.clock)
    await stream.load_shards(range(1, SHARDS))
    last = next(key for key in reversed(keys) if shard_of_key(key, SHARDS))
    loading = asyncio.create_task(stream.load_shards([0]))
    await until(lambda: stream.moved > 0)

    await put(stream, (last, None))
    await loading

    assert stream.get(last) is None
    assert set(stream.values) == set(keys) - {last}
