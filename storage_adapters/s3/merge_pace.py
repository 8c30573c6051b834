"""Pace of merges, and waiting for their threads."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

LOOK_S: Final = 0.005
LOOKS_MAX: Final = 20  # for each piece of 256 KiB: so at least 2.5 MB/s are merged

_T = TypeVar("_T")


class Stopped(Exception):
    """The storage is being closed: unfinished objects are swept later."""


class Pace:
    """Pace of a merge: it lets uploads go first, for a bounded time, and stops the work on request.

    ``looks``: the most waits per piece; fewer, the more there is to merge.
    """

    def __init__(self, is_uploading: Callable[[], bool]) -> None:
        self._is_uploading = is_uploading
        self.looks = LOOKS_MAX
        self.stop = threading.Event()

    def __call__(self) -> None:
        """Wait before the next piece. In a thread. Errors: ``Stopped``."""
        looks = self.looks
        while looks > 0 and self._is_uploading() and not self.stop.is_set():
            looks -= 1
            self.stop.wait(LOOK_S)
        if self.stop.is_set():
            raise Stopped


async def all_of(work: Sequence[Awaitable[_T]]) -> list[_T]:
    """Run all of ``work``; after all have ended, return the results or raise the first error."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]  # No exceptions are left in it.
