"""Check of every record: CRCs, compression, and ascending offsets within and across batches."""

import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from gateway.model import HEADER_BYTES, unpack_batch_header
from pipeline.audit import findings as kinds
from pipeline.audit.findings import Finding
from pipeline.log.options import Options
from pipeline.log.reading import BadBatch, read_split
from pipeline.log.splits import Split, plan
from pipeline.log.views import PartitionView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OFFSETS: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
)


def check_records(
    spark: "SparkSession", found: Mapping[str, PartitionView], options: Options
) -> Iterator[Finding]:
    """Yield batches that cannot be decoded, and records whose offsets do not ascend."""
    start = {place: view.start for place, view in found.items()}
    end = {place: view.end for place, view in found.items()}
    splits = plan(found, start, end, options)
    if splits:
        tasks = spark.sparkContext.parallelize(splits, len(splits))
        for wrong in tasks.map(lambda split: _check(split, options)).toLocalIterator():
            yield from wrong


def _check(split: Split, options: Options) -> list[Finding]:
    bad: list[BadBatch] = []
    wrong: list[Finding] = []
    for rows in read_split(split, options, _OFFSETS, bad=bad):
        if rows.num_rows:
            wrong += _backwards(rows)
    return wrong + [damage_of(one) for one in bad]


def _backwards(rows: pa.RecordBatch) -> Iterator[Finding]:
    offsets = rows.column("offset").to_numpy()
    topic, number = rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py()
    for at in np.flatnonzero(offsets[1:] <= offsets[:-1]).tolist():
        offset, before = int(offsets[at + 1]), int(offsets[at])
        kind = kinds.DUPLICATE if offset == before else kinds.DISORDER
        text = f"a record that lies behind the one of offset {before}"
        yield Finding(kind, topic, number, offset, offset, 1, text)


def damage_of(bad: BadBatch) -> Finding:
    """Return the finding for a batch that cannot be decoded."""
    last = last_offset_of(bad)
    return Finding(kinds.DAMAGED, bad.topic, bad.number, bad.base_offset, last, 1, bad.reason)


def last_offset_of(bad: BadBatch) -> int:
    """Return the last offset of a damaged batch, as far as its header is plausible."""
    try:
        header = unpack_batch_header(bad.data[:HEADER_BYTES])
    except struct.error:
        return bad.base_offset
    return bad.base_offset + max(header.last_offset_delta, 0)
