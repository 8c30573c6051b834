"""A bug of one who shares a coalescer costs the others nothing."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.coalescer import Coalescer
from gateway.errors import StorageUnavailable
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from tests.gateway.kernel_in_memory import outcome, running

WITHIN_S = 10


class OwnBugError(Exception):
    """A fault of our own code."""


def run_of(value: bytes) -> RecordRun:
    return RecordRun(None, [value], NO_HEADERS, 0)


def heard_by_the_loop() -> list[dict[str, object]]:
    """Return where the loop will put what it hears of bugs, for the time of a test."""
    failed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: failed.append(found))
    return failed


async def test_who_fails_to_fill_a_round_keeps_nobody_back(tmp_path: Path) -> None:
    """Neither what has been put into that round, nor what comes later."""
    async with running(tmp_path) as house:
        partition = await house.partition("t")
        failed = heard_by_the_loop()
        coalescer = Coalescer(house.broker)

        def fill() -> None:
            if not failed:
                raise OwnBugError

        coalescer.before_seal.append(fill)
        for value in (b"1", b"2"):
            async with asyncio.timeout(WITHIN_S):
                error = await outcome(partial(coalescer.add, partition, run_of(value)))
            assert error is None
        assert [type(one["exception"]) for one in failed] == [OwnBugError]
        assert house.values(partition) == [b"1", b"2"]


async def test_who_fails_to_hear_of_a_round_does_not_keep_back_the_next(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as house:
        partition = await house.partition("t")
        failed = heard_by_the_loop()
        coalescer = Coalescer(house.broker)
        done: asyncio.Future[StorageUnavailable | None] = asyncio.Future()

        def on_first(_error: StorageUnavailable | None) -> None:
            raise OwnBugError

        coalescer.add(partition, run_of(b"1"), on_first)
        coalescer.seal()
        coalescer.add(partition, run_of(b"2"), done.set_result)
        async with asyncio.timeout(WITHIN_S):
            error = await done

        assert error is None
        assert len(failed) == 1
        assert house.values(partition) == [b"1", b"2"]


async def test_who_hears_of_a_round_with_one_who_fails_hears_of_it(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        partition = await house.partition("t")
        failed = heard_by_the_loop()
        coalescer = Coalescer(house.broker)
        done: asyncio.Future[StorageUnavailable | None] = asyncio.Future()

        def on_first(_error: StorageUnavailable | None) -> None:
            raise OwnBugError

        coalescer.add(partition, run_of(b"1"), on_first)
        coalescer.add(partition, run_of(b"2"), done.set_result)
        async with asyncio.timeout(WITHIN_S):
            assert await done is None

        assert [type(one["exception"]) for one in failed] == [OwnBugError]


async def test_what_cannot_be_encoded_is_refused_with_all_beside_it(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        partition = await house.partition("t")
        failed = heard_by_the_loop()
        coalescer = Coalescer(house.broker)
        told: list[StorageUnavailable | None] = []
        coalescer.add(partition, run_of(b"1"), told.append)
        coalescer.add(partition, RecordRun(None, [b"never"], NO_HEADERS, 1 << 63), told.append)

        async with asyncio.timeout(WITHIN_S):
            error = await outcome(partial(coalescer.add, partition, run_of(b"2")))
            again = await outcome(partial(coalescer.add, partition, run_of(b"3")))

        assert [type(one) for one in (*told, error)] == [StorageUnavailable] * 3
        assert again is None
        assert len(failed) == 1
        assert house.values(partition) == [b"3"]


@pytest.mark.parametrize("is_under_way", [False, True])
async def test_an_append_that_fails_by_a_bug_keeps_nobody_waiting(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_under_way: bool,  # noqa: FBT001
) -> None:
    """Neither those of its round, which hear of it once, nor those of the next."""
    async with running(tmp_path) as house:
        partition = await house.partition("t")
        failed = heard_by_the_loop()
        coalescer = Coalescer(house.broker)
        append = house.broker.append
        told: list[StorageUnavailable | None] = []

        def break_down(*args: Any, **how: Any) -> None:
            if is_under_way:
                append(*args, **how)
            raise OwnBugError

        with monkeypatch.context() as patch:
            patch.setattr(house.broker, "append", break_down)
            coalescer.add(partition, run_of(b"1"), told.append)
            async with asyncio.timeout(WITHIN_S):
                error = await outcome(partial(coalescer.add, partition, run_of(b"2")))
        async with asyncio.timeout(WITHIN_S):
            later = [
                await outcome(partial(coalescer.add, partition, run_of(value)))
                for value in (b"3", b"4")
            ]

        assert [type(one) for one in (*told, error)] == [StorageUnavailable] * 2
        assert later == [None, None]
        assert [type(one["exception"]) for one in failed] == [OwnBugError]
        assert house.values(partition)[-2:] == [b"3", b"4"]
