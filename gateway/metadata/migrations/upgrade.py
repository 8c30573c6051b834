"""Missing migrations of a database."""

from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from gateway.metadata.schema import SCHEMA_VERSION

SCRIPTS: Final = "gateway.metadata:migrations"


def upgrade(connection: Connection, to_version: str = SCHEMA_VERSION) -> None:
    """Bring the schema up to ``to_version``, within the connection's transaction."""
    command.upgrade(make_config(connection), to_version)


def make_config(connection: Connection) -> Config:
    """Return alembic's config; ``env.py`` reads the connection from it."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", SCRIPTS)
    config.set_main_option("path_separator", "os")
    return config
