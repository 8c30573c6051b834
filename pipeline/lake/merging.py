"""Merging of a lake table's small files: the choice of files, and one new file from some."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import pyarrow.parquet as pq

from pipeline.lake.files import LakeFile, Layout
from pipeline.lake.place import open_place

_SMALL_PART: Final = 2  # a file below half of the size that files should have is small
_ROWS_AT_ONCE: Final = 16_384


class OneFile(NamedTuple):
    """A file of a table. ``path`` is below the table."""

    path: str
    topic: str
    day: str
    size_bytes: int


def bins(files: Iterable[OneFile], *, file_bytes: int) -> list[list[OneFile]]:
    """Group small files by topic and day, at least two to a group.

    >>> small = [OneFile(name, "t", "d", 30) for name in "abcde"]
    >>> [[one.path for one in some] for some in bins(small, file_bytes=100)]
    [['a', 'b', 'c'], ['d', 'e']]
    """
    by_day: dict[tuple[str, str], list[list[OneFile]]] = {}
    for one in sorted(files):
        if one.size_bytes * _SMALL_PART >= file_bytes:
            continue
        found = by_day.setdefault((one.topic, one.day), [[]])
        if sum(other.size_bytes for other in found[-1]) + one.size_bytes > file_bytes:
            found.append([])
        found[-1].append(one)
    return [some for found in by_day.values() for some in found if len(some) > 1]


def merge(some: Sequence[OneFile], url: str, layout: Layout) -> LakeFile:
    """Write the rows of some files of one topic and day into a new one. Error: ``OSError``."""
    place = open_place(url)
    topic, day = some[0].topic, some[0].day
    path = f"{layout.folder(topic, day)}/{uuid.uuid4().hex}.parquet"
    row_count = 0
    with (
        place.create(path) as stream,
        pq.ParquetWriter(stream, layout.columns, compression="zstd") as writer,
    ):
        for one in some:
            with place.files.open_input_file(f"{place.root}/{one.path}") as source:
                for rows in pq.ParquetFile(source).iter_batches(_ROWS_AT_ONCE):
                    writer.write_batch(rows.cast(layout.columns))
                    row_count += rows.num_rows
    place.sync(path)
    size_bytes = place.files.get_file_info(f"{place.root}/{path}").size
    return LakeFile(path, topic, day, row_count, size_bytes, "")
