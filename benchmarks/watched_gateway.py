"""``python -m benchmarks.watched_gateway serve ...``: the gateway, its loop's turns measured.

The longest turn so far stands in the file that ``HEADGATE_TURNS`` names, as two doubles: seconds
of the loop's thread, which other processes do not lengthen, and of the clock. Whoever writes zeros
there begins anew. The loop turns without rest meanwhile.
"""

import asyncio
import mmap
import os
import struct
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from gateway.__main__ import main

PLACE: Final = "HEADGATE_TURNS"
TURN: Final = struct.Struct("dd")


class Turns:
    """Measures from one turn of the loop to the next."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), TURN.size)
        self._loop = asyncio.get_running_loop()
        self._thread_s = time.thread_time()
        self._clock_s = time.perf_counter()
        self._loop.call_soon(self._turned)

    def _turned(self) -> None:
        thread_s, clock_s = time.thread_time(), time.perf_counter()
        longest = TURN.unpack_from(self._shared)
        turn = thread_s - self._thread_s, clock_s - self._clock_s
        if turn[0] > longest[0] or turn[1] > longest[1]:
            TURN.pack_into(self._shared, 0, max(turn[0], longest[0]), max(turn[1], longest[1]))
        self._thread_s, self._clock_s = thread_s, clock_s
        self._loop.call_soon(self._turned)


def _run(run: Callable[[Coroutine[Any, Any, int]], int], work: Coroutine[Any, Any, int]) -> int:
    return run(_watched(work))


async def _watched(work: Coroutine[Any, Any, int]) -> int:
    Turns(Path(os.environ[PLACE]))
    return await work


if __name__ == "__main__":
    vars(uvloop)["run"] = partial(_run, uvloop.run)
    main()
