"""Rules for one client identifier; existing rules are for all."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_NAMES = (
    "principal",
    "host",
    "protocol",
    "operation",
    "resource_type",
    "pattern_kind",
    "pattern",
    "allow",
)


def upgrade() -> None:
    """Recreate the table, since SQLite cannot change a constraint."""
    older = sa.table("acl_rules", sa.column("id"), *map(sa.column, _NAMES))
    found = op.get_bind().execute(sa.select(older).order_by(older.c.id)).mappings().all()
    rules = [{name: row[name] for name in _NAMES} for row in found]
    op.drop_table("acl_rules")
    made = op.create_table(
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
        sa.Column("client", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_acl_rules")),
        sa.UniqueConstraint(*_NAMES, "client", name=op.f("uq_acl_rules_principal")),
    )
    # Without their ids, so that those to come go on after them; in their order all the same.
    values = [rule | {"allow": bool(rule["allow"]), "client": "*"} for rule in rules]
    op.bulk_insert(made, values)
