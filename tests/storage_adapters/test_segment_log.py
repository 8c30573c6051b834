"""The segment log keeps the contract, in every flush policy."""

from pathlib import Path

from gateway.clock import ManualClock
from gateway.storage import StorageAdapter
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from tests.contracts.storage import StorageContract

MIB = 1_048_576


def new_log(data_dir: Path, **options: object) -> SegmentLog:
    """Return a log with the smallest segments there are."""
    options = {"segment_bytes": MIB, "reserve_bytes": 0, **options}
    config = SegmentLogConfig.model_validate(options)
    return SegmentLog(config, data_dir=data_dir, clock=ManualClock())


class TestGroup(StorageContract):
    def new_storage(self, data_dir: Path) -> StorageAdapter:
        return new_log(data_dir, flush="group")


class TestNever(StorageContract):
    def new_storage(self, data_dir: Path) -> StorageAdapter:
        return new_log(data_dir, flush="never")


class TestInterval(StorageContract):
    def new_storage(self, data_dir: Path) -> StorageAdapter:
        return new_log(data_dir, flush="interval", flush_interval_ms=10)
