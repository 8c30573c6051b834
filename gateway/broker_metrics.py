"""Metrics of the broker: appends, reads and the storage. Read only on a scrape."""

from gateway.metrics import Metrics
from gateway.reader import Reader
from gateway.storage import StorageAdapter
from gateway.writer import Writer


def register_metrics(
    metrics: Metrics, writer: Writer, reader: Reader, storage: StorageAdapter
) -> None:
    """Register them, and those that the storage has of its own."""
    metrics.counter_fn(
        "headgate_appended_batches", "Batches appended.", lambda: writer.batches_appended
    )
    metrics.counter_fn(
        "headgate_appended_records", "Records appended.", lambda: writer.records_appended
    )
    metrics.counter_fn(
        "headgate_appended_bytes", "Bytes of batches appended.", lambda: writer.bytes_appended
    )
    metrics.counter_fn(
        "headgate_duplicate_batches",
        "Duplicate batches of idempotent producers.",
        lambda: writer.duplicates_answered,
    )
    metrics.counter_fn(
        "headgate_read_bytes", "Bytes of batches read.", lambda: reader.bytes_read
    )
    metrics.counter_fn(
        "headgate_disk_reads", "Reads that had to wait for the disk.", lambda: reader.disk_reads
    )
    stored = reader.stored
    metrics.counters_fn(
        "headgate_corrupt_batches",
        "Damaged batches in the storage, by topic.",
        ("topic",),
        lambda: [((topic,), count) for topic, count in tuple(stored.counts.items())],
    )
    metrics.gauge(
        "headgate_wal_queued_bytes",
        "Bytes appended that are not durable yet.",
        lambda: storage.queued_bytes,
    )
    register_storage = getattr(storage, "register_metrics", None)
    if register_storage is not None:
        register_storage(metrics)
