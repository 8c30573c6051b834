"""Client quotas."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "client_quotas",
        sa.Column("user_name", sa.String(length=256), nullable=False),
        sa.Column("client_id", sa.String(length=256), nullable=False),
        sa.Column("ip", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "user_name", "client_id", "ip", "name", name=op.f("pk_client_quotas")
        ),
    )
