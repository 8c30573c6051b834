"""Runs of blocks in memory: what was checked, what is held, what is on its way."""

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from storage_adapters.s3.caching import join
from storage_adapters.s3.memory_cache import MemoryCache, Run, Window

_SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12)


def run(number: int, block: int, blocks: int = 1) -> Run:
    return Run(number, block * 10, bytes(range(block * 10, (block + blocks) * 10)))


@given(noted=_SPANS, asked=_SPANS)
def test_checked_is_what_was_noted(
    noted: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    checked = Run(1, 0, bytes(100))
    data: set[int] = set()
    for start, size in noted:
        checked.note_checked(start, start + size)
        data.update(range(start, start + size))

    for start, size in asked:
        assert checked.is_checked(start, start + size) == data.issuperset(
            range(start, start + size)
        )


@given(spans=_SPANS, gap=st.integers(0, 5))
def test_joined_spans_hold_all_and_lie_apart(spans: list[tuple[int, int]], gap: int) -> None:
    pairs = [(start, start + size) for start, size in spans]

    joined = join(pairs, gap)

    assert all(any(a <= start and end <= b for a, b in joined) for start, end in pairs)
    assert all(later[0] - sooner[1] > gap for sooner, later in pairwise(joined))
    assert {a for a, _ in joined} <= {start for start, _ in pairs}


def test_pieces_are_one_run() -> None:
    pieces = Run(1, 30, [b"abc", bytearray(b"de"), memoryview(b"-fg-")[1:3]])

    assert (pieces.end, pieces.size_bytes) == (37, 7)
    assert bytes(pieces.view) == b"abcdefg"
    assert pieces.view is pieces.view
    assert bytes(Window([pieces]).view(32, 36)) == b"cdef"


def test_window_joins_runs() -> None:
    window = Window([run(1, 2, 2), run(1, 1)])

    assert bytes(window.view(12, 18)) == bytes(range(12, 18))
    assert bytes(window.view(15, 35)) == bytes(range(15, 35))
    assert window.run(12, 18) is not None
    assert window.run(15, 35) is None
    window.note_checked(15, 35)
    assert window.is_checked(16, 35)
    assert not window.is_checked(14, 20)


async def test_used_runs_outlive_others() -> None:
    cache = MemoryCache(30, 10)
    for block in range(3):
        await cache.reserve(10)
        cache.put(run(1, block))

    cache.get(1, 0)
    await cache.reserve(10)
    cache.put(run(1, 3))

    assert [cache.get(1, n) is not None for n in range(4)] == [True, False, True, True]
    assert cache.held_bytes == 30


async def test_what_is_on_its_way_takes_room() -> None:
    cache = MemoryCache(30, 10)
    await cache.reserve(20)
    cache.put(run(1, 0, 2))

    await cache.reserve(20)

    assert cache.get(1, 0) is None
    assert (cache.held_bytes, cache.coming_bytes) == (0, 20)


async def test_who_finds_no_room_waits_in_order() -> None:
    cache = MemoryCache(30, 10)
    await cache.reserve(30)
    large = asyncio.create_task(cache.reserve(25))
    small = asyncio.create_task(cache.reserve(5))
    for _ in range(5):
        await asyncio.sleep(0)

    cache.release(10)  # enough for the small one, which came later
    for _ in range(5):
        await asyncio.sleep(0)
    assert not large.done()
    assert not small.done()
    cache.release(20)
    await asyncio.gather(large, small)

    assert cache.coming_bytes == 30


async def test_who_is_cancelled_leaves_room_to_the_next() -> None:
    cache = MemoryCache(30, 10)
    await cache.reserve(30)
    first = asyncio.create_task(cache.reserve(30))
    second = asyncio.create_task(cache.reserve(10))
    await asyncio.sleep(0)

    first.cancel()
    cache.release(30)
    await second

    assert cache.coming_bytes == 10


async def test_run_above_the_bound_comes_alone_and_is_not_kept() -> None:
    cache = MemoryCache(15, 10)
    await cache.reserve(20)
    cache.put(run(1, 0, 2))
    assert cache.get(1, 0) is None
    assert (cache.held_bytes, cache.coming_bytes) == (0, 0)


async def test_run_that_took_the_place_of_another_outlives_it() -> None:
    cache = MemoryCache(30, 10)
    older, newer = run(1, 0, 2), run(1, 0)  # its object was dropped while the first was coming
    for one in (older, newer):
        await cache.reserve(len(one.view))
        cache.put(one)

    await cache.reserve(10)
    cache.put(run(2, 0))

    assert cache.get(1, 0) is newer
    assert cache.get(1, 1) is None


async def test_discarded_bytes_take_their_run_with_them() -> None:
    cache = MemoryCache(100, 10)
    for one in (run(1, 0, 3), run(1, 3), run(2, 0)):
        await cache.reserve(len(one.view))
        cache.put(one)

    cache.discard(1, 15, 16)

    assert [cache.get(1, n) is None for n in range(4)] == [True, True, True, False]
    cache.drop(1)
    assert cache.get(1, 3) is None
    assert cache.get(2, 0) is not None
    assert cache.held_bytes == 10
