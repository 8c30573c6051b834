"""What the log counts of itself: plain integers, read when metrics are scraped."""

from typing import Final

SYNC_MS_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
GROUP_BYTES_BOUNDS: Final = (4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216)


class Histogram:
    """Counts per bucket; the last of ``counts`` is for what is above all ``bounds``."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count ``value`` in the first bucket whose bound it does not pass."""
        self.total += value
        for index, bound in enumerate(self.bounds):
            if value <= bound:
                self.counts[index] += 1
                return
        self.counts[-1] += 1


class SegmentLogMetrics:
    """Totals since the start. ``sync_ms``: how long each fdatasync took."""

    __slots__ = (
        "groups",
        "groups_bytes",
        "segments_closed",
        "segments_removed",
        "sync_ms",
        "syncs",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.groups = 0
        self.groups_bytes = Histogram(GROUP_BYTES_BOUNDS)
        self.written_bytes = 0
        self.syncs = 0
        self.sync_ms = Histogram(SYNC_MS_BOUNDS)
        self.segments_closed = 0
        self.segments_removed = 0
