"""Tables of the metadata store, for SQLite and PostgreSQL.

A change here needs a migration in ``migrations/versions`` and a new ``SCHEMA_VERSION``;
a test holds that the migrations and ``TABLES.create_all`` give the same schema. Times are unix
milliseconds, uuids are native where the database has the type, else 32 hex digits.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)

SCHEMA_VERSION: Final = "0008"
OLDER_VERSIONS: Final[tuple[str, ...]] = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
)  # those that the migrations can bring up to date

TABLES: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

META: Final = Table(
    "meta",
    TABLES,
    Column("key", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

# The next id of each kind that nobody has had.
COUNTERS: Final = Table(
    "counters",
    TABLES,
    Column("name", String(64), primary_key=True),
    Column("next_value", BigInteger, nullable=False),
)

TOPICS: Final = Table(
    "topics",
    TABLES,
    Column("uuid", Uuid, primary_key=True),
    Column("namespace", String(255), nullable=False),
    Column("name", String(249), nullable=False),
    Column("is_internal", Boolean, nullable=False),
    Column("created_unix_ms", BigInteger, nullable=False),
    UniqueConstraint("namespace", "name"),
)

# Runs of partitions with consecutive numbers and ids, so that 100,000 partitions are few rows.
PARTITION_RANGES: Final = Table(
    "partition_ranges",
    TABLES,
    Column("first_partition_id", BigInteger, primary_key=True, autoincrement=False),
    Column("topic_uuid", ForeignKey(TOPICS.c.uuid, ondelete="CASCADE"), nullable=False),
    Column("first_number", Integer, nullable=False),
    Column("length", Integer, nullable=False),
    UniqueConstraint("topic_uuid", "first_number"),
)

# What was deleted here but not yet, as far as we know, in the storage: a crash between the two
# is repaired at the next start.
DELETED_PARTITIONS: Final = Table(
    "deleted_partitions",
    TABLES,
    Column("first_partition_id", BigInteger, primary_key=True, autoincrement=False),
    Column("topic_uuid", Uuid, nullable=False),
    Column("namespace", String(255), nullable=False),
    Column("name", String(249), nullable=False),
    Column("first_number", Integer, nullable=False),
    Column("length", Integer, nullable=False),
    Column("deleted_unix_ms", BigInteger, nullable=False),
    Index(None, "topic_uuid"),
)

TOPIC_CONFIGS: Final = Table(
    "topic_configs",
    TABLES,
    Column("topic_uuid", ForeignKey(TOPICS.c.uuid, ondelete="CASCADE"), primary_key=True),
    Column("name", String(249), primary_key=True),
    Column("value", Text, nullable=False),
)

# Native names are any bytes up to 255 in some protocols; those are escaped by their adapter.
ADDRESSES: Final = Table(
    "addresses",
    TABLES,
    Column("namespace", String(255), primary_key=True),
    Column("protocol", String(64), primary_key=True),
    Column("native_name", String(1024), primary_key=True),
    Column("topic_uuid", ForeignKey(TOPICS.c.uuid, ondelete="CASCADE"), nullable=False),
    Column("group_name", String(255)),
    Index(None, "topic_uuid"),
)

# Settings, attributes and tags are JSON objects; settings leave defaults out.
QUEUES: Final = Table(
    "queues",
    TABLES,
    Column("topic_uuid", ForeignKey(TOPICS.c.uuid, ondelete="CASCADE"), primary_key=True),
    Column("group_name", String(255), primary_key=True),
    Column("settings", Text, nullable=False),
    Column("attributes", Text, nullable=False),
    Column("tags", Text, nullable=False),
    Column("owns_topic", Boolean, nullable=False),
    Column("created_unix_ms", BigInteger, nullable=False),
    Column("changed_unix_ms", BigInteger, nullable=False),
)

# Arguments are JSON objects. The exchanges that every namespace has are not stored.
EXCHANGES: Final = Table(
    "exchanges",
    TABLES,
    Column("namespace", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("type", String(64), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("auto_delete", Boolean, nullable=False),
    Column("is_internal", Boolean, nullable=False),
    Column("created_unix_ms", BigInteger, nullable=False),
)

# A binding to an exchange has no topic.
BINDINGS: Final = Table(
    "bindings",
    TABLES,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("namespace", String(255), nullable=False),
    Column("source", String(255), nullable=False),
    Column("destination", String(255), nullable=False),
    Column("topic_uuid", ForeignKey(TOPICS.c.uuid, ondelete="CASCADE")),
    Column("routing_key", String(255), nullable=False),
    Column("arguments", Text, nullable=False),
    Index(None, "source"),
    Index(None, "topic_uuid"),
)

USERS: Final = Table("users", TABLES, Column("name", String(255), primary_key=True))

SCRAM_CREDENTIALS: Final = Table(
    "scram_credentials",
    TABLES,
    Column("user_name", ForeignKey(USERS.c.name, ondelete="CASCADE"), primary_key=True),
    Column("mechanism", String(32), primary_key=True),
    Column("salt", LargeBinary, nullable=False),
    Column("iterations", Integer, nullable=False),
    Column("stored_key", LargeBinary, nullable=False),
    Column("server_key", LargeBinary, nullable=False),
)

# Super users beside those of ``auth.super_users``. The user need not be one of ``users``.
ADMINISTRATORS: Final = Table(
    "administrators", TABLES, Column("user_name", String(255), primary_key=True)
)

# Both sides of a signature compute it from the secret itself, so no verifier could stand for it.
# The user need not be one of ``users``: who only signs requests has no password.
ACCESS_KEYS: Final = Table(
    "access_keys",
    TABLES,
    Column("key_id", String(128), primary_key=True),
    Column("secret", String(256), nullable=False),
    Column("user_name", String(255), nullable=False),
    Column("account", String(32), nullable=False),
    Index(None, "user_name"),
)

ACL_RULES: Final = Table(
    "acl_rules",
    TABLES,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("principal", String(255), nullable=False),
    Column("host", String(255), nullable=False),
    Column("protocol", String(64), nullable=False),
    Column("operation", String(32), nullable=False),
    Column("resource_type", String(32), nullable=False),
    Column("pattern_kind", String(32), nullable=False),
    Column("pattern", String(255), nullable=False),
    Column("allow", Boolean, nullable=False),
    Column("client", String(255), nullable=False),
    UniqueConstraint(
        "principal",
        "host",
        "protocol",
        "operation",
        "resource_type",
        "pattern_kind",
        "pattern",
        "allow",
        "client",
    ),
)

# A part of an entity is "" without it, "*" for the default, else "=" and its name.
CLIENT_QUOTAS: Final = Table(
    "client_quotas",
    TABLES,
    Column("user_name", String(256), primary_key=True),
    Column("client_id", String(256), primary_key=True),
    Column("ip", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("value", Double, nullable=False),
)

# Small settings; values are JSON. A namespace may be empty.
DOCUMENTS: Final = Table(
    "documents",
    TABLES,
    Column("kind", String(64), primary_key=True),
    Column("namespace", String(255), primary_key=True),
    Column("name", String(512), primary_key=True),
    Column("value", Text, nullable=False),
)

# A row for each write since some revision, without gaps; ``key`` names the changed row as JSON, and
# says nothing of its content: a row that is not there any more was deleted.
CHANGES: Final = Table(
    "changes",
    TABLES,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(32), nullable=False),
    Column("key", Text, nullable=False),
    Column("writer", String(32), nullable=False),
)

SEEN_REVISIONS: Final = Table(
    "seen_revisions",
    TABLES,
    Column("node_id", BigInteger, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
)

# Alembic's own table: one row with the version. Read without alembic, which costs 50 ms to
# import.
VERSIONS: Final = Table(
    "alembic_version",
    MetaData(naming_convention={"pk": "%(table_name)s_pkc"}),
    Column("version_num", String(32), primary_key=True),
)
