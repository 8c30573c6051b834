"""Futures for callers that wait for a callback to run."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from gateway.errors import StorageUnavailable
from gateway.storage import OnDone

T = TypeVar("T")


def set_result_if_pending(future: asyncio.Future[T], result: T) -> None:
    """Set the result, unless the future is done: its connection may have ended meanwhile."""
    if not future.done():
        future.set_result(result)


async def await_done(start: Callable[[OnDone], None]) -> None:
    """Call ``start`` with a callback, and return when the callback has run.

    Errors: those that ``start`` raises; the ``StorageUnavailable`` passed to the callback.
    """
    done: asyncio.Future[StorageUnavailable | None] = asyncio.get_running_loop().create_future()
    start(partial(set_result_if_pending, done))
    error = await done
    if error is not None:
        raise error
