"""Counters of the S3 storage: plain numbers, read when metrics are scraped."""

from collections.abc import Callable, Mapping
from typing import Final

from gateway.metrics import Histogram, Metrics, Sample
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.caching import ObjectCache
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.merging import Merger
from storage_adapters.s3.state import Catalog

PUT_S_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
COMMIT_S_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 60.0)
OBJECT_BYTES_BOUNDS: Final = (4_096, 65_536, 1_048_576, 4_194_304, 8_388_608, 33_554_432)


class S3Metrics:
    """Totals since the start. ``put_s``, ``commit_s``: their durations, retries included."""

    __slots__ = ("commit_s", "object_bytes", "objects", "put_s")

    def __init__(self) -> None:
        self.objects = 0
        self.put_s = Histogram(PUT_S_BOUNDS)
        self.commit_s = Histogram(COMMIT_S_BOUNDS)
        self.object_bytes = Histogram(OBJECT_BYTES_BOUNDS)

    def register(self, metrics: Metrics) -> None:
        """Register these with a node's metrics."""
        self.put_s = metrics.histogram(
            "headgate_s3_put_seconds", "How long each object of appends took.", PUT_S_BOUNDS
        )
        self.commit_s = metrics.histogram(
            "headgate_s3_commit_seconds",
            "Duration of each commit of objects.",
            COMMIT_S_BOUNDS,
        )
        self.object_bytes = metrics.histogram(
            "headgate_s3_object_bytes", "Sizes of objects of appends.", OBJECT_BYTES_BOUNDS
        )
        metrics.counter_fn(
            "headgate_s3_objects_total", "Objects of appends put.", lambda: self.objects
        )


def register_counts(
    metrics: Metrics, catalog: Catalog, waiting_count: Callable[[], int]
) -> None:
    """Register the numbers of objects. ``waiting_count``: those that are not committed yet."""
    metrics.gauge(
        "headgate_s3_uploads_waiting",
        "Objects of appends that are not committed yet.",
        waiting_count,
    )
    metrics.gauge("headgate_s3_objects", "Live objects.", lambda: len(catalog.objects))


def register_bucket(metrics: Metrics, bucket: Bucket) -> None:
    """Register the counts and sizes of requests to the bucket."""
    metrics.counters_fn(
        "headgate_s3_requests_total",
        "Requests to the bucket, each try counted.",
        ("kind",),
        lambda: _samples(bucket.statistics.requests),
    )
    metrics.counters_fn(
        "headgate_s3_retries_total",
        "Retried requests to the bucket.",
        ("reason",),
        lambda: _samples(bucket.statistics.retries),
    )
    metrics.counters_fn(
        "headgate_s3_bytes_total",
        "Bytes put into the bucket, and got from it.",
        ("kind",),
        lambda: [
            (("put",), bucket.statistics.sent_bytes),
            (("get",), bucket.statistics.received_bytes),
        ],
    )


def register_cache(metrics: Metrics, cache: ObjectCache) -> None:
    """Register the hits of each cache tier."""
    metrics.counters_fn(
        "headgate_s3_read_bytes_total",
        "Bytes of objects needed by reads, by tier: in blocks, except in the tail.",
        ("tier",),
        lambda: [
            (("tail",), cache.counts.tail_bytes),
            (("memory",), cache.counts.memory_bytes),
            (("disk",), cache.counts.disk_bytes),
            (("bucket",), cache.counts.bucket_bytes),
        ],
    )
    metrics.gauges(
        "headgate_s3_cache_bytes",
        "Bytes in the caches of objects.",
        ("tier",),
        lambda: [
            (("tail",), cache.tail_bytes),
            (("memory",), cache.memory_bytes),
            (("disk",), cache.disk_bytes),
        ],
    )


def register_commits(metrics: Metrics, committer: Committer) -> None:
    """Register the work of the database."""
    metrics.counter_fn(
        "headgate_s3_transactions_total",
        "Transactions of the index, including those of merges and log starts.",
        lambda: committer.transactions,
    )
    metrics.counter_fn(
        "headgate_s3_commit_retries_total",
        "Commits retried because the database was unavailable.",
        lambda: committer.retries,
    )


def register_merges(metrics: Metrics, merger: Merger) -> None:
    """Register the work of merges."""
    metrics.counter_fn("headgate_s3_merges_total", "Rounds of merging.", lambda: merger.rounds)
    metrics.counter_fn(
        "headgate_s3_merged_objects_total",
        "Objects that were merged into others.",
        lambda: merger.merged_objects,
    )
    metrics.counter_fn(
        "headgate_s3_merged_bytes_total",
        "Bytes of objects that were merged into others.",
        lambda: merger.merged_bytes,
    )
    metrics.counter_fn(
        "headgate_s3_merge_failures_total",
        "Failed rounds of merging, which are retried.",
        lambda: merger.failures,
    )
    metrics.gauge(
        "headgate_s3_damaged_objects",
        "Damaged objects, which are not changed.",
        lambda: merger.damaged_count,
    )


def _samples(counts: Mapping[str, int]) -> list[Sample]:
    return [((name,), count) for name, count in counts.items()]
