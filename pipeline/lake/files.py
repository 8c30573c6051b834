"""Files of lake tables: kinds of tables, layouts, and the file of undecodable batches."""

from datetime import date
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.log.row_schema import ROWS

DATA_COLUMN: Final = "octets"
"""Column of a batch's bytes. The name stays because tables exist with it."""

BAD: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("number", pa.int32()),
        ("base_offset", pa.int64()),
        ("reason", pa.string()),
        (DATA_COLUMN, pa.binary()),
    ]
)
DAY_US: Final = 86_400_000_000
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MOMENTS_US: Final = (
    (date.min.toordinal() - EPOCH_DAY) * DAY_US,
    (date.max.toordinal() - EPOCH_DAY) * DAY_US,
)


class TableKind(NamedTuple):
    """Kind of a table: its columns, and whether it is partitioned by topic and day."""

    columns: pa.Schema
    by_day: bool


ROWS_KIND: Final = TableKind(ROWS, by_day=True)
BAD_KIND: Final = TableKind(BAD, by_day=False)


class Layout(NamedTuple):
    """Layout of a format's files.

    ``in_path``: topic and day are in the path, ``topic=a/day=b``, and not in the files.
    """

    columns: pa.Schema
    in_path: bool

    def folder(self, topic: str, day: str) -> str:
        """Return the folder of a topic's and day's files, below the table."""
        return f"topic={topic}/day={day}" if self.in_path else f"data/{topic}/{day}"


class LakeFile(NamedTuple):
    """A finished file. ``path`` is below the table, ``stats`` as Delta Lake has them."""

    path: str
    topic: str
    day: str
    row_count: int
    size_bytes: int
    stats: str


def within_calendar(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows for a table, with a ``timestamp`` beyond the calendar set to its last one."""
    moments = rows.column("timestamp").cast(pa.int64()).to_numpy()
    if moments.min() >= _MOMENTS_US[0] and moments.max() <= _MOMENTS_US[1]:
        return rows
    clipped = pa.array(np.clip(moments, *_MOMENTS_US)).cast(ROWS.field("timestamp").type)
    return rows.set_column(rows.schema.get_field_index("timestamp"), "timestamp", clipped)
