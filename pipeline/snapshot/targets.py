"""Targets of a snapshot: a folder of Parquet files, or a table of Delta Lake."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.clock import SystemClock
from gateway.errors import RequestError
from pipeline.lake.place import open_place, reaching, storage_options, unavailable
from pipeline.log.row_schema import ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELTA: Final = "delta"
PARQUET: Final = "parquet"
FORMATS: Final = (PARQUET, DELTA)
SUCCESS: Final = "_SUCCESS"  # marks a complete folder, as in Hadoop's tools
SNAPSHOT: Final = ROWS.append(pa.field("protocol", pa.string()))
_WRITTEN_SQL: Final = "path string, row_count long, size_bytes long"


class NotEmpty(RequestError):
    """The target has other content."""


class WrittenFile(NamedTuple):
    """A finished file. ``path`` is below the place."""

    path: str
    row_count: int
    size_bytes: int


class Target(Protocol):
    """Target for finished files. Errors of all calls: ``LakeUnavailable``."""

    url: str
    prefix: str
    """Prefix of the names of this run's files; files of another run never have it."""

    def check(self) -> None:
        """Check that a snapshot can be written there. Error: ``NotEmpty``."""
        ...

    def commit(self, files: Sequence[WrittenFile], about: Mapping[str, str]) -> None:
        """Publish the files as the snapshot, atomically. Error: ``NotEmpty``."""
        ...


def open_target(url: str, table_format: str) -> Target:
    """Return the target of a snapshot. Errors: ``RequestError``, ``BadPlace``."""
    if table_format not in FORMATS:
        raise RequestError(f"--format {table_format}: there is {', '.join(FORMATS)}")
    return DeltaTarget(url) if table_format == DELTA else ParquetTarget(url)


class ParquetTarget:
    """A new folder; it is complete when it has ``_SUCCESS``, which lists its content."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"part-{uuid4().hex}-"
        self._place = open_place(url)

    def check(self) -> None:
        """See ``Target``."""
        with reaching(self.url):
            found = self._place.names("")
        if found:
            raise NotEmpty(
                f"{self.url} is not empty ({found[0]}): a snapshot in Parquet needs a folder of "
                "its own; --format delta replaces the one before"
            )

    def commit(self, files: Sequence[WrittenFile], about: Mapping[str, str]) -> None:
        """See ``Target``. Files left by repeated tasks are removed first."""
        named = {one.path for one in files}
        with reaching(self.url):
            for name in self._place.names(""):
                if name.startswith(self.prefix) and name not in named:
                    self._place.delete(name)
            text = json.dumps({**about, "files": sorted(named)}, indent=2)
            is_ours = self._place.create_whole(SUCCESS, text.encode())
        if not is_ours:
            raise NotEmpty(f"{self.url}: another snapshot was written to it meanwhile")


class DeltaTarget:
    """Table in which each version is a snapshot."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"part-{uuid4().hex}-"

    def check(self) -> None:
        """See ``Target``."""
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            table = DeltaTable(self.url, storage_options=storage_options(self.url))
        except TableNotFoundError:
            return
        except (DeltaError, OSError) as error:
            raise unavailable(self.url, error) from error
        if table.schema() != Schema.from_arrow(SNAPSHOT):
            raise NotEmpty(f"{self.url} is a table with other columns: give another folder")

    def commit(self, files: Sequence[WrittenFile], about: Mapping[str, str]) -> None:
        """See ``Target``. Files that no version names are ignored."""
        from deltalake import CommitProperties, DeltaTable
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, RemoveAction

        now_unix_ms = SystemClock().unix_ms()
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                path=one.path,
                size=one.size_bytes,
                partition_values={},
                modification_time=now_unix_ms,
                data_change=True,
                stats=json.dumps({"numRecords": one.row_count}),
            )
            for one in files
        ]
        try:
            table = DeltaTable.create(
                self.url,
                schema=SNAPSHOT,
                mode="ignore",
                storage_options=storage_options(self.url),
            )
            table.create_write_transaction(
                actions,
                "overwrite",
                table.schema(),
                commit_properties=CommitProperties(custom_metadata=dict(about)),
            )
        except (DeltaError, OSError) as error:
            raise unavailable(self.url, error) from error


def write_files(rows: "DataFrame", target: Target) -> list[WrittenFile]:
    """Write rows as Parquet files, one for each task with rows."""
    url, prefix = target.url, target.prefix

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = _write(url, f"{prefix}{uuid4().hex}.parquet", batches)
        if written is not None:
            yield pa.RecordBatch.from_pylist([written._asdict()])

    found = rows.mapInArrow(write, _WRITTEN_SQL).collect()
    return [WrittenFile(row.path, row.row_count, row.size_bytes) for row in found]


def _write(url: str, path: str, batches: Iterator[pa.RecordBatch]) -> WrittenFile | None:
    """Write batches to a new file; None without rows."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return None
    row_count = 0
    place = open_place(url)
    with place.create(path) as stream:
        with pq.ParquetWriter(stream, SNAPSHOT, compression="zstd") as writer:
            for batch in _all(first, batches):
                writer.write_batch(_as_snapshot(batch))
                row_count += batch.num_rows
        size_bytes = stream.tell()
    place.sync(path)
    return WrittenFile(path, row_count, size_bytes)


def _all(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _as_snapshot(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [batch.column(field.name).cast(field.type) for field in SNAPSHOT]
    return pa.RecordBatch.from_arrays(arrays, schema=SNAPSHOT)
