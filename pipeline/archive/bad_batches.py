"""Batches that cannot be decoded: kept in a table beside the archive's own."""

import json
import uuid
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.model import PartitionIdentity
from pipeline.lake.files import BAD, DATA_COLUMN, LakeFile
from pipeline.lake.place import open_place
from pipeline.lake.port import Lake
from pipeline.log.reading import BadBatch


def keep_bad(lake: Lake, bad: Sequence[BadBatch], moved: Sequence[PartitionIdentity]) -> None:
    """Store batches that could not be decoded in the table of dead letters.

    Called before the commit that skips them. Without that commit, they are recognized by their
    offsets when they come again. ``moved``: the partitions that they can belong to.
    """
    if not bad:
        return
    dead_letters = lake.dead_letters()
    identities = {(one.topic.name, one.number): one for one in moved}
    rows: list[BadBatch] = []
    positions: dict[PartitionIdentity, int] = {}
    for one in sorted(bad):
        identity = identities[one.topic, one.number]
        if one.base_offset >= (dead_letters.position(identity) or 0):
            rows.append(one)
            positions[identity] = one.base_offset + 1
    if rows:
        dead_letters.commit([write_bad(dead_letters.url, rows)], positions)


def write_bad(url: str, bad: Sequence[BadBatch]) -> LakeFile:
    """Write batches that could not be decoded to a file of the dead letters' table."""
    path = f"{uuid.uuid4().hex}.parquet"
    rows = pa.Table.from_pylist(
        [{**one._asdict(), DATA_COLUMN: one.data} for one in bad], schema=BAD
    )
    place = open_place(url)
    with place.create(path) as stream:
        pq.write_table(rows, stream, compression="zstd")
        size_bytes = stream.tell()
    place.sync(path)
    stats = json.dumps({"numRecords": rows.num_rows})
    return LakeFile(path, "", "", rows.num_rows, size_bytes, stats)
