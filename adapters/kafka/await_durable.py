"""Waiting for durability, in handlers of infrequent requests."""

import asyncio
from collections.abc import Callable

from gateway.errors import StorageUnavailable
from gateway.storage import OnDone


async def await_durable(start: Callable[[OnDone], None]) -> None:
    """Call ``start`` with a callback, and return when the callback has run.

    Errors: those that ``start`` raises; the ``StorageUnavailable`` passed to the callback.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_done(error: StorageUnavailable | None) -> None:
        if done.done():  # The connection may have ended.
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    start(on_done)
    await done
