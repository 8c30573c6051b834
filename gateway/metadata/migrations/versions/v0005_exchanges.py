"""Exchanges and their bindings."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "exchanges",
        sa.Column("namespace", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("auto_delete", sa.Boolean(), nullable=False),
        sa.Column("is_internal", sa.Boolean(), nullable=False),
        sa.Column("created_unix_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_exchanges")),
    )
    op.create_table(
        "bindings",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("namespace", sa.String(length=255), nullable=False),
        sa.Column("source", sa.String(length=255), nullable=False),
        sa.Column("destination", sa.String(length=255), nullable=False),
        sa.Column("topic_uuid", sa.Uuid(), nullable=True),
        sa.Column("routing_key", sa.String(length=255), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["topic_uuid"],
            ["topics.uuid"],
            name=op.f("fk_bindings_topic_uuid"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bindings")),
    )
    op.create_index(op.f("ix_bindings_source"), "bindings", ["source"], unique=False)
    op.create_index(op.f("ix_bindings_topic_uuid"), "bindings", ["topic_uuid"], unique=False)
