"""Settings of a gateway that compacts a small topic within a test."""

from typing import Final

# Small files, settled and compacted as soon as they can be.
NODE_SETTINGS: Final = {
    "storage.segment_bytes": 1 << 20,
    "storage.reserve_bytes": 1 << 19,
    "storage.settle_after_bytes": 0,
    "storage.settle_after_ms": 0,
    "broker.producer_snapshot_bytes": 1 << 20,  # settling waits for it
    "compaction.interval_ms": 100,
}
TOPIC_CONFIGS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
