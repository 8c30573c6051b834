"""Serving of large requests in slices, between which the loop serves other connections.

A request of at most ``SLICE_ELEMENTS`` array elements is decoded, handled and answered at once.
A larger one, up to ``request_elements_max``, is decoded and encoded in a thread, and handled on
the loop in slices of ``SLICE_ELEMENTS``; between two slices the handler calls ``yield_to_loop``.
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
    """A thread that decodes and encodes large requests.

    One for all connections: several would compete for the interpreter lock, and delay the loop.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[..., Result], *args: object) -> Result:
        """Call ``work(*args)`` in the thread; return its result or raise its exception."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "kafka-large")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def close(self) -> None:
        """Stop the thread; work that has not begun is dropped."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


async def yield_to_loop() -> None:
    """Let the loop run other callbacks."""
    await asyncio.sleep(0)


class SliceCounter:
    """Counts the elements of a slice, for handlers that are coroutines."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = SLICE_ELEMENTS

    def is_over(self, elements: int = 1) -> bool:
        """Count elements; return True, and start a new slice, when the slice is full."""
        self._left -= elements
        if self._left > 0:
            return False
        self._left = SLICE_ELEMENTS
        return True


def free_in_slices(topics: list[tuple[Ref, list[Part]]]) -> None:
    """Free a request slice by slice: freed at once, even in a thread, it would block the loop."""
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
    """Return the results of the groups of ``topic_slices(topics)`` as one list of topics."""
    found = iter([part for group in slices_done for part in group])
    joined = []
    for ref, parts in topics:
        results: list[Result] = list(next(found)[1])
        while len(results) < len(parts):
            results += next(found)[1]
        joined.append((ref, results))
    return joined
