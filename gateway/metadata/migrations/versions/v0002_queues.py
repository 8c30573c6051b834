"""Queues and access keys."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "queues",
        sa.Column("topic_uuid", sa.Uuid(), nullable=False),
        sa.Column("group_name", sa.String(length=255), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("owns_topic", sa.Boolean(), nullable=False),
        sa.Column("created_unix_ms", sa.BigInteger(), nullable=False),
        sa.Column("changed_unix_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["topic_uuid"],
            ["topics.uuid"],
            name=op.f("fk_queues_topic_uuid"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("topic_uuid", "group_name", name=op.f("pk_queues")),
    )
    op.create_table(
        "access_keys",
        sa.Column("key_id", sa.String(length=128), nullable=False),
        sa.Column("secret", sa.String(length=256), nullable=False),
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.Column("account", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_access_keys")),
    )
    op.create_index(
        op.f("ix_access_keys_user_name"), "access_keys", ["user_name"], unique=False
    )
