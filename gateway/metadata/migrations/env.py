"""Alembic runs this for every command; ``upgrade`` gives the connection."""

from alembic import context

from gateway.metadata.schema import TABLES

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=TABLES,
    render_as_batch=True,  # SQLite changes a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
