"""Lake tables of all formats, filled and read as their users do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from pipeline.lake import parquet
from pipeline.lake.files import DATA_COLUMN
from pipeline.lake.iceberg_reading import default_catalog
from tests.pipeline.running import Jobs, at
from tests.support.gateway import Gateway

SETTINGS = {
    "storage.reserve_bytes": 1 << 17,
    "storage.segment_bytes": 1 << 20,
    "storage.settle_after_bytes": 2 << 20,
    "storage.settle_after_ms": 500,
}
FORMATS = ("delta", "iceberg", "parquet")


def produce(gateway: Gateway, topic: str, numbers: range) -> None:
    """Send numbered values, of three days."""
    failed: list[object] = []
    producer = Producer(
        {"bootstrap.servers": gateway.bootstrap, "linger.ms": 5, "batch.size": 100_000},
    )
    for number in numbers:
        day_ms = number % 3 * 86_400_000
        producer.produce(
            topic,
            f"{number:08d}".encode().ljust(300, b"."),
            timestamp=1_700_000_000_000 + day_ms,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert not failed


def options(data_dir: Path, topic: str, to: Path | str, *more: str) -> list[str]:
    """Return the options of an archive."""
    return ["--topic", topic, "--to", str(to), at(data_dir), *more]


def archive(
    jobs: Jobs,
    data_dir: Path,
    topic: str,
    to: Path | str,
    *more: str,
    env: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Run it, and return its summary."""
    done = jobs.run("archive", *options(data_dir, topic, to, "--json", *more), env=env)
    found: dict[str, int] = done.json
    return found


def read(
    to: Path, table_format: str, columns: list[str], *, catalog_of: Path | None = None
) -> pa.Table:
    """Read a local table as readers of its format do. ``catalog_of``: a table that it is beside."""
    if table_format == "delta":
        return DeltaTable(to).to_pyarrow_table(columns=columns)
    if table_format == "iceberg":
        catalog = SqlCatalog("headgate", uri=default_catalog(str(catalog_of or to)))
        table = catalog.load_table(f"headgate.{to.name.replace('-', '_')}")
        return table.scan(selected_fields=tuple(columns)).to_arrow()
    found = parquet.files(str(to))
    return pa.concat_tables(pq.read_table(one, columns=columns) for one in found)


def rows(to: Path, table_format: str) -> list[tuple[int, int, int]]:
    """Return (partition, offset, number) of each row, sorted."""
    table = read(to, table_format, ["partition", "offset", "value"])
    return sorted(
        (row["partition"], row["offset"], int(row["value"][:8])) for row in table.to_pylist()
    )


def commits(to: Path, table_format: str) -> int:
    """Return how many commits have added rows, without opening the table."""
    if table_format == "delta":
        return len(list((to / "_delta_log").glob("*.json"))) - 1
    if table_format == "iceberg":
        return len(list((to / "metadata").glob("snap-*.avro")))
    return len(list((to / parquet.FOLDER).glob("*.json"))) - 1


def is_whole(found: list[tuple[int, int, int]], count: int, partitions: int) -> None:
    """Assert that each number is there once, and each partition without a gap."""
    assert sorted(number for _, _, number in found) == list(range(count))
    for partition in range(partitions):
        offsets = [offset for number, offset, _ in found if number == partition]
        assert offsets == list(range(len(offsets)))


def bad_rows(to: Path, table_format: str) -> list[dict[str, Any]]:
    """Return the dead letters of a table."""
    columns = ["topic", "number", "base_offset", "reason", DATA_COLUMN]
    found: list[dict[str, Any]] = read(
        to.with_name(f"{to.name}-dead-letters"), table_format, columns, catalog_of=to
    ).to_pylist()
    return found
