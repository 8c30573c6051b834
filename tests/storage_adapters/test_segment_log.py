"""The segment log keeps the contract, in every flush policy."""

from pathlib import Path

from gateway.clock import ManualClock
from gateway.metrics import Metrics
from gateway.storage import StorageAdapter
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from tests.contracts.storage import CompactingStorageContract, Host, append, make_entry

MIB = 1_048_576


def new_log(data_dir: Path, **options: object) -> SegmentLog:
    """Return a log with the smallest segments there are."""
    options = {"segment_bytes": MIB, "reserve_bytes": 0, "settle_after_bytes": 0, **options}
    config = SegmentLogConfig.model_validate(options)
    return SegmentLog(config, data_dir=data_dir, clock=ManualClock())


class TestGroup(CompactingStorageContract):
    def new_storage(self, data_dir: Path) -> StorageAdapter:
        return new_log(data_dir, flush="group")


class TestGroupByThread(CompactingStorageContract):
    def new_storage(self, data_dir: Path) -> StorageAdapter:
        return new_log(data_dir, flush="group", io_uring=False)


class TestNever(CompactingStorageContract):
    def new_storage(self, data_dir: Path) -> StorageAdapter:
        return new_log(data_dir, flush="never")


class TestInterval(CompactingStorageContract):
    def new_storage(self, data_dir: Path) -> StorageAdapter:
        return new_log(data_dir, flush="interval", flush_interval_ms=10)


async def test_metrics_are_shown(tmp_path: Path) -> None:
    log, metrics = new_log(tmp_path, io_uring=False), Metrics()
    await log.open(Host())
    log.register_metrics(metrics)

    await append(log, make_entry((1, 0), size_bytes=1_000))

    text = metrics.render().decode()
    assert "headgate_wal_syncs_total 1.0" in text
    assert "headgate_wal_sync_seconds_count 1.0" in text
    assert 'headgate_wal_group_bytes_bucket{le="4096' in text
    assert "headgate_wal_io_uring 0.0" in text
    assert "headgate_wal_segments 1.0" in text
    await log.close()
