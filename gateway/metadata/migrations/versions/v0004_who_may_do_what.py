"""Administrators, and stored settings for required login and the default of rules."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table, and store the settings that users and rules implied before.

    Where there are users, everybody had to log in; where there are rules (but for those of MQTT
    topics, which closed nothing else), what no rule allowed was denied.
    """
    op.create_table(
        "administrators",
        sa.Column("user_name", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("user_name", name=op.f("pk_administrators")),
    )
    connection = op.get_bind()
    users, rules = sa.table("users"), sa.table("acl_rules", sa.column("resource_type"))
    has_users = connection.scalar(sa.select(sa.func.count()).select_from(users))
    closing = sa.select(sa.func.count()).select_from(rules)
    has_rules = connection.scalar(closing.where(rules.c.resource_type != "mqtt_topic"))
    values = {"auth_default": "deny" if has_rules else "allow"}
    if has_users:
        values["auth_required"] = "true"
    meta = sa.table("meta", sa.column("key"), sa.column("value"))
    op.bulk_insert(meta, [{"key": key, "value": value} for key, value in values.items()])
