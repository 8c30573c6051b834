"""Rows of a lake table by file: list of files, and the chosen rows of each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from gateway.errors import RequestError
from pipeline.lake.place import open_place, reaching
from pipeline.lake.port import PARQUET, check_catalog_is_iceberg
from pipeline.lake.table import TableFile
from pipeline.lake.table_reading import read_table
from pipeline.log.row_schema import HEADERS

PLACE: Final = pa.schema(
    [
        ("place", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
RECORD: Final = pa.schema(
    [
        *PLACE,
        ("unix_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
"""``place`` numbers the partitions that the rows are of; -1 as long as nobody has."""

_ROWS_AT_ONCE: Final = 8_192
_US_PER_MS: Final = 1_000

Places = Mapping[tuple[str, int], int]


class RowChoice(NamedTuple):
    """Chosen records: half-open ranges of offsets and times, -1: no bound."""

    topics: frozenset[str] = frozenset()
    partitions: frozenset[int] = frozenset()
    first_offset: int = -1
    end_offset: int = -1
    start_unix_ms: int = -1
    end_unix_ms: int = -1


def table_files(url: str, choice: RowChoice, *, catalog: str = "") -> list[TableFile]:
    """Return the files of a table of any format that may have chosen records.

    All files of a folder of Parquet files without a table count. ``catalog``: see ``open_lake``.
    Errors: ``RequestError``, ``BadPlace``, ``LakeUnavailable``.
    """
    table = read_table(url, catalog=catalog, topics=choice.topics)
    if table is not None:
        return table.files
    check_catalog_is_iceberg(PARQUET, catalog)
    with reaching(url):
        found = _folder_files(url)
    if not found:
        raise RequestError(f"{url}: there is no table, and no Parquet file")
    return [
        one for one in found if not one.topic or not choice.topics or one.topic in choice.topics
    ]


def _folder_files(url: str) -> list[TableFile]:
    place = open_place(url)
    selector = fs.FileSelector(place.root, recursive=True, allow_not_found=True)
    found: list[TableFile] = []
    for one in place.files.get_file_info(selector):
        if one.is_file and one.extension == "parquet":
            path = one.path[len(place.root) :].lstrip("/")
            folders = dict(part.partition("=")[::2] for part in path.split("/")[:-1])
            found.append(TableFile(path, unquote(folders.get("topic", ""))))
    return sorted(found)


def read_rows(
    url: str, file: TableFile, choice: RowChoice, schema: pa.Schema, places: Places
) -> Iterator[pa.RecordBatch]:
    """Yield the chosen rows of a file, with the columns of ``schema``.

    Errors: ``LakeUnavailable``, ``RequestError`` for columns other than those of records.
    """
    place = open_place(url)
    with reaching(url), place.files.open_input_file(f"{place.root}/{file.path}") as stream:
        parquet = pq.ParquetFile(stream)
        wanted = _wanted(url, file, parquet.schema_arrow, schema, choice)
        for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=wanted):
            rows = _chosen(batch, file, choice)
            if rows.num_rows:
                yield _shaped(rows, file, schema, places)


def _wanted(
    url: str, file: TableFile, there: pa.Schema, schema: pa.Schema, choice: RowChoice
) -> list[str]:
    """Return the columns to read. Error: ``RequestError`` for one that is missing."""
    wanted = ["partition", "offset", *(["topic"] if not file.topic else [])]
    has_times = choice.start_unix_ms >= 0 or choice.end_unix_ms >= 0
    if has_times or "unix_ms" in schema.names:
        wanted.append("timestamp")
    wanted += [name for name in ("key", "value", "headers") if name in schema.names]
    missing = [name for name in wanted if name not in there.names]
    if missing:
        raise RequestError(f"{url}/{file.path} has no column {', '.join(missing)}")
    return wanted


def _chosen(batch: pa.RecordBatch, file: TableFile, choice: RowChoice) -> pa.RecordBatch:
    offsets = batch.column("offset")
    tests: list[pa.Array] = []
    if choice.topics and not file.topic:
        topics = pa.array(sorted(choice.topics), pa.string())
        tests.append(pc.is_in(batch.column("topic").cast(pa.string()), topics))
    if choice.partitions:
        numbers = pa.array(sorted(choice.partitions), pa.int64())
        tests.append(pc.is_in(batch.column("partition").cast(pa.int64()), numbers))
    if choice.first_offset >= 0:
        tests.append(pc.greater_equal(offsets, choice.first_offset))
    if choice.end_offset >= 0:
        tests.append(pc.less(offsets, choice.end_offset))
    if choice.start_unix_ms >= 0:
        tests.append(pc.greater_equal(_unix_ms(batch), choice.start_unix_ms))
    if choice.end_unix_ms >= 0:
        tests.append(pc.less(_unix_ms(batch), choice.end_unix_ms))
    for test in tests[1:]:
        tests[0] = pc.and_(tests[0], test)
    return batch.filter(tests[0]) if tests else batch


def _unix_ms(batch: pa.RecordBatch) -> pa.Array:
    stamps = batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return pc.divide(stamps, _US_PER_MS)  # the log has milliseconds


def _shaped(
    rows: pa.RecordBatch, file: TableFile, schema: pa.Schema, places: Places
) -> pa.RecordBatch:
    topics = (
        pa.repeat(file.topic, rows.num_rows)
        if file.topic
        else rows.column("topic").cast(pa.string())
    )
    arrays: list[pa.Array] = []
    for name in schema.names:
        if name == "topic":
            arrays.append(topics)
        elif name == "place":
            numbers = rows.column("partition").to_pylist()
            names: Sequence[str] = topics.to_pylist()
            found = [places.get(one, -1) for one in zip(names, numbers, strict=True)]
            arrays.append(pa.array(found, pa.int32()))
        elif name == "unix_ms":
            arrays.append(_unix_ms(rows))
        else:
            arrays.append(rows.column(name).cast(schema.field(name).type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
