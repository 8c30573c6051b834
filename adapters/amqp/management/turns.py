"""Loops over many things in short turns of the event loop, which serves others in between."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

ROWS_PER_TURN: Final = 200
SORTED_PER_TURN: Final = 1_000

_Thing = TypeVar("_Thing")


async def in_turns(things: Iterable[_Thing]) -> AsyncIterator[_Thing]:
    """Yield things, with a turn of the loop after each ``ROWS_PER_TURN``."""
    for count, thing in enumerate(things, 1):
        yield thing
        if count % ROWS_PER_TURN == 0:
            await asyncio.sleep(0)


async def sorted_in_turns(
    things: Sequence[_Thing], key: Callable[[_Thing], Any], *, is_reversed: bool = False
) -> list[_Thing]:
    """Return things as ``sorted`` does: short runs are sorted, then merged, each in its turn."""
    runs: list[list[_Thing]] = []
    for start in range(0, len(things), SORTED_PER_TURN):
        part = things[start : start + SORTED_PER_TURN]
        runs.append(sorted(part, key=key, reverse=is_reversed))
        await asyncio.sleep(0)
    if len(runs) == 1:
        return runs[0]
    merged = heapq.merge(*runs, key=key, reverse=is_reversed)
    found: list[_Thing] = []
    while part := list(islice(merged, SORTED_PER_TURN)):
        found += part
        await asyncio.sleep(0)
    return found
