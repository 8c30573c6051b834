"""SQL tables of the index, in the metadata store's database; created for the S3 storage only.

They have a MetaData and a version of their own, so that a node without S3 never sees them. Times
are unix milliseconds. docs/formats.md section 11 says what the columns mean.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Uuid,
)

INDEX_FORMAT: Final = 3  # a higher one in the database is refused; lower ones become 3
COMMON: Final = -1  # the slot of the row that all writers share
SOLE: Final = 0  # the log of a node that has the data for itself
NOBODY: Final = 0  # node of a log that no node holds

PENDING: Final = 0  # the number is reserved; the bucket may have the object
LIVE: Final = 1  # it is in use
DEAD: Final = 2  # it is unneeded; its key may be deleted

TABLES: Final = MetaData()

INDEX: Final = Table(
    "s3_index",
    TABLES,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 0: there is one row
    Column("format", Integer, nullable=False),
    Column("data_uuid", Uuid, nullable=True),  # null until the bucket's marker is known
    Column("bucket", String(255), nullable=True),
    Column("prefix", String(512), nullable=True),
)

# A row for each log (``slot`` is its number), and the common row. Each transaction that changes
# objects begins with an UPDATE of its log's row: it holds the row's lock until the end, so that
# commits and take-overs of a log come one behind the other. Writers do not wait for each other but
# for the common row, which each locks after its own and before any other rows.
#
#                    a log's row                    the common row
#   epoch            its writer's, unique for ever  the highest given
#   next_sequence    of the log                     0
#   next_number      0                              of objects
#   deaths           0                              transactions in which live objects died
OWNERS: Final = Table(
    "s3_owners",
    TABLES,
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("node_id", BigInteger, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("next_sequence", BigInteger, nullable=False),
    Column("next_number", BigInteger, nullable=False),
    Column("deaths", BigInteger, nullable=False),
)

OBJECTS: Final = Table(
    "s3_objects",
    TABLES,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", Integer, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column(
        "death", BigInteger, nullable=False
    ),  # the common row's `deaths` then; 0: it never was live
    Column("kind", SmallInteger, nullable=False),
    Column("first_sequence", BigInteger, nullable=False),
    Column("next_sequence", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("etag", String(255), nullable=False),
    Column("changed_unix_ms", BigInteger, nullable=False),
    Column("parts", LargeBinary, nullable=True),
    Column(
        "rows", LargeBinary, nullable=True
    ),  # last: SQLite reads a row from its beginning on
    Index("ix_s3_objects_state_changed_unix_ms", "state", "changed_unix_ms"),
)

BOUNDS: Final = Table(
    "s3_bounds",
    TABLES,
    Column("partition_id", BigInteger, primary_key=True, autoincrement=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("below_bytes", BigInteger, nullable=False),
    Column("is_deleted", Boolean, nullable=False),
)

LEASES: Final = Table(
    "s3_leases",
    TABLES,
    Column("id", String(36), primary_key=True),
    Column("holder", String(255), nullable=False),
    Column("deaths", BigInteger, nullable=False),  # the common row's when it was taken
    Column("expires_unix_ms", BigInteger, nullable=False),
)
