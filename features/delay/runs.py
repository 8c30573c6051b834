"""Messages that wait as one: put together, due in the same millisecond, for the same partition.

A run has one place in the log, one time in the wheel and one row in all that is counted there; its
messages have numbers that follow each other, the first of which is the run's. A message of it can
still be cancelled: then it is ``gone``, and the others go without it.
"""

from typing import Final

from features.delay.message_locations import BLOCK_COUNT, MessageLocation

RUN_COUNT_MIN: Final = (
    8  # fewer are cheaper by themselves: a batch of few costs its readers more
)

_NOBODY: Final[frozenset[int]] = frozenset()  # nearly no run has anything cancelled
_BLOCK_BITS: Final = BLOCK_COUNT.bit_length() - 1


class DelayedRun:
    """One run. ``left``: how many of its messages still count; ``gone``: numbers that do not go.

    ``location``: where it lies while nobody else knows, because part of it is being moved.
    """

    __slots__ = ("count", "first", "gone", "left", "location")

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.count = self.left = count
        self.gone: frozenset[int] = _NOBODY
        self.location: MessageLocation | None = None

    def present(self) -> list[int]:
        """Return the numbers that are to go."""
        numbers = range(self.first, self.first + self.count)
        return [number for number in numbers if number not in self.gone]


class Runs:
    """All runs that wait, by the numbers of their messages; none has two blocks of numbers."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[DelayedRun]] = {}

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, first: int, count: int) -> None:
        """Add a run that begins with a number; see ``start_of_run``."""
        assert first >> _BLOCK_BITS == first + count - 1 >> _BLOCK_BITS
        self._blocks.setdefault(first >> _BLOCK_BITS, []).append(DelayedRun(first, count))

    def get(self, first: int) -> DelayedRun | None:
        """Return the run that begins with a number, None for a message that waits alone."""
        for run in self._blocks.get(first >> _BLOCK_BITS, ()):
            if run.first == first:
                return run
        return None

    def of(self, number: int) -> DelayedRun | None:
        """Return the run that a message is of, None when it waits alone, or not at all."""
        for run in self._blocks.get(number >> _BLOCK_BITS, ()):
            if run.first <= number < run.first + run.count:
                return run
        return None

    def pop(self, first: int) -> DelayedRun | None:
        """Forget the run that begins with a number; None when there is none."""
        run = self.get(first)
        if run is not None:
            block = self._blocks[first >> _BLOCK_BITS]
            block.remove(run)
            if not block:
                del self._blocks[first >> _BLOCK_BITS]
        return run


def start_of_run(last_number: int, count: int) -> int:
    """Return the first number above ``last_number`` with which a run of that many may begin."""
    first = last_number + 1
    if first >> _BLOCK_BITS == first + count - 1 >> _BLOCK_BITS:
        return first
    return (first >> _BLOCK_BITS) + 1 << _BLOCK_BITS
