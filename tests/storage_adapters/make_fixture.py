"""Made tests/fixtures/data_v1 once; kept to show what is in it. Never run it again.

    python -m tests.storage_adapters.make_fixture <empty directory>

A data directory of format version 1 that every later version must open: a segment that was closed
by a clean stop, and one that a killed process left, cut behind its last entry.
"""

import asyncio
import json
import shutil
import sys
from pathlib import Path

from gateway.clock import ManualClock
from gateway.records.codec import encode_batch
from gateway.storage import Entry, Target
from gateway.testing.storage import Host, append, delete, truncate
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.config import SegmentLogConfig
from storage_adapters.segment_log.inspect import inspect_entries, inspect_segments


def entry(log: SegmentLog, partition_ids: list[int], words: list[str], time_ms: int) -> Entry:
    """Return an entry of one record per word, keyed by its length."""
    records = [(time_ms, str(len(w)).encode(), w.encode(), [("n", b"1")]) for w in words]
    batch = encode_batch(records)
    targets = tuple(Target(i, log.bounds(i).end) for i in partition_ids)
    batch[:8] = targets[0].base_offset.to_bytes(8, "big")
    batch[12:16] = log.incarnation.to_bytes(4, "big")
    return Entry(targets, batch, len(words), time_ms)


async def make(data_dir: Path) -> None:
    """Write the two segments, each in a life of its own."""
    config = SegmentLogConfig.model_validate({"segment_bytes": 1_048_576, "reserve_bytes": 0})
    log = SegmentLog(config, data_dir=data_dir / "live", clock=ManualClock())
    await log.open(Host())
    await append(log, entry(log, [1], ["alpha", "beta"], 1_000))
    await append(log, entry(log, [1, 2], ["gamma"], 3_000), entry(log, [3], ["delta"], 2_000))
    await append(log, entry(log, [2], ["epsilon", "zeta", "eta"], 4_000))
    await truncate(log, 2, 1)
    await delete(log, 3)
    await log.close()

    log = SegmentLog(config, data_dir=data_dir / "live", clock=ManualClock())
    await log.open(Host())
    await append(log, entry(log, [1], ["theta"], 5_000))
    await append(log, entry(log, [4], ["iota", "kappa"], 6_000))
    shutil.copytree(data_dir / "live" / "wal", data_dir / "wal")
    await log.close()
    shutil.rmtree(data_dir / "live")
    for report in inspect_segments(data_dir):
        if report.trailer is None:
            last = list(inspect_entries(report))[-1]
            with report.path.open("r+b") as file:
                file.truncate(last.position + last.size_bytes)


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1])))
    print(json.dumps([str(path) for path in sorted(Path(sys.argv[1]).rglob("*"))]))
