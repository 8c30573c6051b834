"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "acl_rules",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("principal", sa.String(length=255), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("protocol", sa.String(length=64), nullable=False),
        sa.Column("operation", sa.String(length=32), nullable=False),
        sa.Column("resource_type", sa.String(length=32), nullable=False),
        sa.Column("pattern_kind", sa.String(length=32), nullable=False),
        sa.Column("pattern", sa.String(length=255), nullable=False),
        sa.Column("allow", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_acl_rules")),
        sa.UniqueConstraint(
            "principal",
            "host",
            "protocol",
            "operation",
            "resource_type",
            "pattern_kind",
            "pattern",
            "allow",
            name=op.f("uq_acl_rules_principal"),
        ),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("next_value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )
    op.create_table(
        "deleted_partitions",
        sa.Column("first_partition_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("topic_uuid", sa.Uuid(), nullable=False),
        sa.Column("namespace", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=249), nullable=False),
        sa.Column("first_number", sa.Integer(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("deleted_unix_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("first_partition_id", name=op.f("pk_deleted_partitions")),
    )
    op.create_index(
        op.f("ix_deleted_partitions_topic_uuid"),
        "deleted_partitions",
        ["topic_uuid"],
        unique=False,
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
    )
    op.create_table(
        "topics",
        sa.Column("uuid", sa.Uuid(), nullable=False),
        sa.Column("namespace", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=249), nullable=False),
        sa.Column("is_internal", sa.Boolean(), nullable=False),
        sa.Column("created_unix_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("uuid", name=op.f("pk_topics")),
        sa.UniqueConstraint("namespace", "name", name=op.f("uq_topics_namespace")),
    )
    op.create_table(
        "users",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_users")),
    )
    op.create_table(
        "addresses",
        sa.Column("namespace", sa.String(length=255), nullable=False),
        sa.Column("protocol", sa.String(length=64), nullable=False),
        sa.Column("native_name", sa.String(length=1024), nullable=False),
        sa.Column("topic_uuid", sa.Uuid(), nullable=False),
        sa.Column("group_name", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(
            ["topic_uuid"],
            ["topics.uuid"],
            name=op.f("fk_addresses_topic_uuid"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "namespace", "protocol", "native_name", name=op.f("pk_addresses")
        ),
    )
    op.create_index(op.f("ix_addresses_topic_uuid"), "addresses", ["topic_uuid"], unique=False)
    op.create_table(
        "partition_ranges",
        sa.Column("first_partition_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("topic_uuid", sa.Uuid(), nullable=False),
        sa.Column("first_number", sa.Integer(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["topic_uuid"],
            ["topics.uuid"],
            name=op.f("fk_partition_ranges_topic_uuid"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("first_partition_id", name=op.f("pk_partition_ranges")),
        sa.UniqueConstraint(
            "topic_uuid", "first_number", name=op.f("uq_partition_ranges_topic_uuid")
        ),
    )
    op.create_table(
        "scram_credentials",
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("mechanism", sa.String(length=32), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("iterations", sa.Integer(), nullable=False),
        sa.Column("stored_key", sa.LargeBinary(), nullable=False),
        sa.Column("server_key", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_name"],
            ["users.name"],
            name=op.f("fk_scram_credentials_user_name"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("user_name", "mechanism", name=op.f("pk_scram_credentials")),
    )
    op.create_table(
        "topic_configs",
        sa.Column("topic_uuid", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=249), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["topic_uuid"],
            ["topics.uuid"],
            name=op.f("fk_topic_configs_topic_uuid"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("topic_uuid", "name", name=op.f("pk_topic_configs")),
    )
