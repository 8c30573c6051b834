"""Counters of the segment log: plain integers, read when metrics are scraped."""

from typing import Final

from gateway.metrics import Histogram, Metrics

SYNC_S_BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
GROUP_BYTES_BOUNDS: Final = (4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216)


class SegmentLogMetrics:
    """Totals since the start. ``sync_s``: the duration of each fdatasync."""

    __slots__ = (
        "groups",
        "groups_bytes",
        "has_ring",
        "segments_closed",
        "segments_removed",
        "settled_bytes",
        "settled_damaged",
        "settled_ms",
        "settled_rounds",
        "settling_failures",
        "sync_s",
        "syncs",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.groups = 0
        self.groups_bytes = Histogram(GROUP_BYTES_BOUNDS)
        self.written_bytes = 0
        self.syncs = 0
        self.has_ring = False
        self.sync_s = Histogram(SYNC_S_BOUNDS)
        self.segments_closed = 0
        self.segments_removed = 0
        self.settled_rounds = 0  # of log segments
        self.settled_bytes = (
            0  # written to settled segments, merged and compacted ones included
        )
        self.settled_ms = 0.0  # time that writing took
        self.settled_damaged = 0  # batches copied although their CRC does not match
        self.settling_failures = 0  # failed tries of any of these

    def register(self, metrics: Metrics) -> None:
        """Register these with a node's metrics. Earlier counts stay in the totals."""
        self.sync_s = metrics.histogram(
            "headgate_wal_sync_seconds", "How long each fdatasync took.", SYNC_S_BOUNDS
        )
        self.groups_bytes = metrics.histogram(
            "headgate_wal_group_bytes", "Bytes that shared a write.", GROUP_BYTES_BOUNDS
        )
        metrics.counter_fn(
            "headgate_wal_syncs_total", "Calls of fdatasync for appends.", lambda: self.syncs
        )
        metrics.gauge(
            "headgate_wal_io_uring",
            "1 when small groups are written and synced by io_uring.",
            lambda: self.has_ring,
        )
        metrics.counter_fn(
            "headgate_wal_groups_total", "Groups of appends written.", lambda: self.groups
        )
        metrics.counter_fn(
            "headgate_wal_written_bytes_total",
            "Bytes written to the log.",
            lambda: self.written_bytes,
        )
        metrics.counter_fn(
            "headgate_settled_rounds_total",
            "Rounds that settled log segments.",
            lambda: self.settled_rounds,
        )
        metrics.counter_fn(
            "headgate_settled_bytes_total",
            "Bytes written to settled segments, merged and compacted ones included.",
            lambda: self.settled_bytes,
        )
        metrics.counter_fn(
            "headgate_settled_seconds_total",
            "Seconds spent on writing settled segments.",
            lambda: self.settled_ms / 1_000,
        )
        metrics.counter_fn(
            "headgate_settling_failures_total",
            "Failed attempts to settle, merge or remove files.",
            lambda: self.settling_failures,
        )
        metrics.counter_fn(
            "headgate_settling_damaged_batches_total",
            "Damaged batches copied unchanged to settled segments.",
            lambda: self.settled_damaged,
        )
        metrics.counter_fn(
            "headgate_wal_segments_removed_total",
            "Segments that every partition had passed.",
            lambda: self.segments_removed,
        )
