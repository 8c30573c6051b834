"""Waiting by condition and bound, never for a fixed time: for a process, a thread, a task."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

_LOOK_AGAIN_S: Final = 0.01
_CLOCK: Final = threading.Event()  # never set; its wait is the pause between two looks


def wait_until(
    condition: Callable[[], bool],
    *,
    within_s: float,
    what: str,
    every_s: float = _LOOK_AGAIN_S,
) -> None:
    """Return as soon as ``condition`` holds. Errors: ``TimeoutError`` that names ``what``."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            msg = f"not within {within_s} s: {what}"
            raise TimeoutError(msg)
        _CLOCK.wait(every_s)


async def turns(count: int = 6) -> None:
    """Turn the loop ``count`` times."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        turned = loop.create_future()
        loop.call_soon(turned.set_result, None)
        await turned


async def until(condition: Callable[[], bool], *, within_s: float = 60) -> None:
    """Turn the loop until ``condition`` holds. Errors: ``TimeoutError``."""
    async with asyncio.timeout(within_s):
        while not condition():
            await turns(1)
