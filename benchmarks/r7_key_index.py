"""R7: building the key index of a settled segment, in one thread, and asking it. No peer."""

import time
from collections.abc import Callable

from benchmarks.report import Report, Row, Sample
from benchmarks.sides import OURS, Options
from gateway.records.codec import encode_batch
from gateway.records.keys import keys_of_batch
from storage_adapters.formats.key_index import KeyIndex
from storage_adapters.formats.key_index_builder import build_key_index

MIB = 256
BATCH_RECORDS = 16
FINDS = 2_000
MB = 1e6
FEW = 1_000
KeyOf = Callable[[int], bytes]


def run(options: Options) -> Report:
    """Build with few and with only distinct keys, in 1 KB and in 100-byte records."""
    size_bytes = options.scaled(MIB) << 20
    cases: dict[str, tuple[int, KeyOf]] = {
        "1 KB, 1,000 keys": (1_000, lambda n: b"user-%08d" % (n % FEW)),
        "1 KB, all distinct": (1_000, lambda n: b"user-%08d" % n),
        "100 bytes, all distinct": (100, lambda n: b"user-%08d" % n),
    }
    rows = []
    for case, (value_bytes, key_of) in cases.items():
        # Smaller records, fewer bytes: about the same time for each case.
        batches = make(size_bytes * value_bytes // 1_000, value_bytes, key_of)
        samples = [build(batches) for _ in range(options.runs)]
        rows.append(Row(case, OURS, "one thread", "MB/s", samples))
    return Report(
        "r7",
        "Building a key index: bytes of batches by time",
        rows,
        [],
        [f"batches of {BATCH_RECORDS} records in one partition, keys as user-00001234"],
    )


def make(size_bytes: int, value_bytes: int, key_of: KeyOf) -> list[tuple[int, int, bytearray]]:
    """Return batches of that many bytes in all, as settling hands them in."""
    value = bytes(value_bytes)
    batches: list[tuple[int, int, bytearray]] = []
    made = 0
    while made < size_bytes:
        first = len(batches) * BATCH_RECORDS
        records = [(0, key_of(first + n), value, ()) for n in range(BATCH_RECORDS)]
        batch = encode_batch(records)
        batches.append((1, len(batches), batch))
        made += len(batch)
    return batches


def build(batches: list[tuple[int, int, bytearray]]) -> Sample:
    """Return MB of batches indexed in a second."""
    started = time.perf_counter()
    data = build_key_index(batches, keys_of_batch, segment_number=1, segment_seed=2)
    seconds = time.perf_counter() - started
    index = KeyIndex(memoryview(data))
    (row,) = index.partitions()
    started = time.perf_counter()
    for n in range(FINDS):
        index.find(1, b"user-%08d" % (n * 7 % FEW))
    find_us = (time.perf_counter() - started) / FINDS * 1e6
    return Sample(
        sum(len(batch) for _, _, batch in batches) / MB / seconds,
        {
            "krecords/s": len(batches) * BATCH_RECORDS / seconds / 1e3,
            "bytes/key": len(data) / row.key_count,
            "find us": find_us,
        },
    )
