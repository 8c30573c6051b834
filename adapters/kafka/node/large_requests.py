"""Work on large requests, in steps between which the loop serves others.

A request of at most ``SLICE_ELEMENTS`` array elements is decoded, handled and answered at once.
What is larger, up to ``request_elements_max``, is decoded and encoded in one thread beside the
loop, and handled on the loop in slices of so many elements: a handler gives the loop back with
``yield_to_loop`` between two slices.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

SLICE_ELEMENTS: Final = 1_000  # about 5 to 10 ms of the loop, whatever the API

Result = TypeVar("Result")
Ref = TypeVar("Ref")
Part = TypeVar("Part")


class LargeRequestThread:
    """A thread for work on large requests that needs nothing of the loop.

    One thread for all connections: several would only wait for each other, and make the loop
    wait for each of them.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[..., Result], *args: object) -> Result:
        """Return what ``work(*args)`` returns, or raise what it raises."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "kafka-large")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def close(self) -> None:
        """End the thread; what it has not begun is dropped."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


async def yield_to_loop() -> None:
    """Let the loop serve others."""
    await asyncio.sleep(0)


class SliceCounter:
    """Counts the elements of a slice, for handlers that are coroutines anyway."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = SLICE_ELEMENTS

    def is_over(self, elements: int = 1) -> bool:
        """Count elements; say whether it is time for ``yield_to_loop``, and begin a new slice."""
        self._left -= elements
        if self._left > 0:
            return False
        self._left = SLICE_ELEMENTS
        return True


def set_result_if_pending(future: asyncio.Future[Result], result: Result) -> None:
    """Give a future its result, unless who awaited it has gone."""
    if not future.done():
        future.set_result(result)


def free_in_slices(topics: list[tuple[Ref, list[Part]]]) -> None:
    """Free a request in a thread, slice by slice: all of it at once would hold the loop."""
    while topics:
        _, parts = topics.pop()
        while parts:
            del parts[-SLICE_ELEMENTS:]


def slices(items: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Yield the items in runs of at most ``SLICE_ELEMENTS``."""
    for start in range(0, len(items), SLICE_ELEMENTS):
        yield items[start : start + SLICE_ELEMENTS]


def topic_slices(
    topics: Sequence[tuple[Ref, Sequence[Part]]],
) -> Iterator[list[tuple[Ref, Sequence[Part]]]]:
    """Yield topics and their partitions in groups of at most ``SLICE_ELEMENTS`` of either.

    A topic with more partitions is in several groups, in order.
    """
    group: list[tuple[Ref, Sequence[Part]]] = []
    room = SLICE_ELEMENTS
    for ref, parts in topics:
        start = 0
        while True:
            taken = parts[start : start + max(room - 1, 1)]
            group.append((ref, taken))
            room -= 1 + len(taken)
            start += len(taken)
            if room <= 1:
                yield group
                group, room = [], SLICE_ELEMENTS
            if start >= len(parts):
                break
    if group:
        yield group


def join_slices(
    topics: Sequence[tuple[Ref, Sequence[object]]],
    slices_done: Sequence[Sequence[tuple[Ref, Sequence[Result]]]],
) -> list[tuple[Ref, list[Result]]]:
    """Return what was done to each group of ``topic_slices(topics)`` as one list of topics."""
    found = iter([part for group in slices_done for part in group])
    joined = []
    for ref, parts in topics:
        results: list[Result] = list(next(found)[1])
        while len(results) < len(parts):
            results += next(found)[1]
        joined.append((ref, results))
    return joined
