"""Sides of a comparison that take turns, and the rows that come of it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from benchmarks.report import Row, Sample
from benchmarks.sides import OURS, wait_until_idle


class _Server(Protocol):
    @property
    def pid(self) -> int: ...


class OneSide(Protocol):
    """A running server and the words for it in the table."""

    @property
    def name(self) -> str:
        """Ours, or the peer's."""
        ...

    @property
    def policy(self) -> str:
        """Statement of which settings are equally durable."""
        ...

    @property
    def server(self) -> _Server:
        """The process."""
        ...


S = TypeVar("S", bound=OneSide)


def measured(
    found: Sequence[S], run: Callable[[S], Sample], *, runs: int
) -> dict[tuple[str, str], list[Sample]]:
    """Run on each side in turn; the first round, a warm-up, does not count.

    Every other round goes backwards, so that what a side leaves to the next falls on both.
    """
    samples: dict[tuple[str, str], list[Sample]] = {(s.name, s.policy): [] for s in found}
    for turn in range(1 + runs):
        for side in found[:: -1 if turn % 2 else 1]:
            wait_until_idle([one.server.pid for one in found])
            sample = run(side)
            if turn:
                keep(samples, side, sample)
    return samples


def keep(samples: dict[tuple[str, str], list[Sample]], side: OneSide, sample: Sample) -> None:
    """Note a sample and show it."""
    samples[side.name, side.policy].append(sample)
    sys.stderr.write(f"  {side.name} {side.policy} {sample.value:,.2f}\n")


def rows_of(
    case: str, unit: str, samples: Mapping[tuple[str, str], Sequence[Sample]]
) -> list[Row]:
    """Return a row for each side."""
    return [Row(case, name, policy, unit, some) for (name, policy), some in samples.items()]


def ratio_to_peer(rows: Sequence[Row], policy: str, *, peer: str) -> float:
    """Return ours at a flush policy by the peer's, of the rows of one case."""
    by_side = {(row.side, row.policy): row.median for row in rows}
    (theirs,) = [median for (side, _policy), median in by_side.items() if side == peer]
    return by_side[OURS, policy] / theirs
