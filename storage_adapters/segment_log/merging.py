"""Which settled segments are worth merging, so that their number stays bounded."""

from collections.abc import Sequence
from typing import Final, NamedTuple

FILES_MIN: Final = 4


class MergeLimits(NamedTuple):
    """What a merged segment may be at most."""

    bytes_max: int
    rows_max: int


def run_to_merge(
    sizes: Sequence[tuple[int, int]], limits: MergeLimits, files_min: int = FILES_MIN
) -> range | None:
    """Return which neighbours, given as (octets, rows), to merge into one, or None.

    As many as fit, of which none holds more than half: so octets are copied a number of times
    that grows with the logarithm of the size only.
    """
    for first in range(len(sizes) - files_min + 1):
        end = _fitting(sizes, first, limits)
        while end - first >= files_min:
            run = [octets for octets, _ in sizes[first:end]]
            if max(run) * 2 <= sum(run):
                return range(first, end)
            end -= 1
    return None


def _fitting(sizes: Sequence[tuple[int, int]], first: int, limits: MergeLimits) -> int:
    octets = rows = 0
    for index in range(first, len(sizes)):
        octets += sizes[index][0]
        rows += sizes[index][1]
        if octets > limits.bytes_max or rows > limits.rows_max:
            return index
    return len(sizes)
