"""How fast merges go, and how their threads are waited for."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

LOOK_S: Final = 0.005
LOOKS_MAX: Final = 20  # for each piece of 256 KiB: at least 2.5 MB go on in a second

_T = TypeVar("_T")


class Stopped(Exception):
    """The storage is being closed: what was begun is left, and swept later."""


class Pace:
    """Lets uploads go first, for a bounded while, and ends the work when it is to stop.

    ``looks``: how often at most a piece waits; fewer the more there is to merge.
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
    """Return what all of ``work`` returns; when one fails, its error, after all have ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]  # No exceptions are left in it.
