"""Waiting for a callback: results, errors, and callers that have gone."""

import asyncio
from functools import partial

import pytest

from gateway.errors import StorageUnavailable
from gateway.futures import await_done, set_result_if_pending
from gateway.storage import OnDone


def soon(error: StorageUnavailable | None, on_done: OnDone) -> None:
    asyncio.get_running_loop().call_soon(on_done, error)


async def test_a_callback_without_an_error_ends_the_wait() -> None:
    await await_done(partial(soon, None))


async def test_the_error_of_the_callback_is_raised() -> None:
    with pytest.raises(StorageUnavailable, match="disk gone"):
        await await_done(partial(soon, StorageUnavailable("disk gone")))


async def test_a_callback_after_its_caller_has_gone_does_nothing() -> None:
    started: list[OnDone] = []
    task = asyncio.create_task(await_done(started.append))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    started[0](None)


async def test_a_result_is_set_once() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    set_result_if_pending(future, 1)
    set_result_if_pending(future, 2)
    assert await future == 1
