"""Columns of a record as a row, shared by lake tables, snapshots and comparisons."""

from typing import Final

import pyarrow as pa

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HEADERS_SQL: Final = "array<struct<key:string,value:binary>>"  # as Spark names the same
ROWS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
