"""Migration of a database's schema; alembic is not loaded when it is current."""

from importlib import import_module

from sqlalchemy import Connection, insert, inspect, select

from gateway.errors import StorageUnavailable
from gateway.metadata.schema import OLDER_VERSIONS, SCHEMA_VERSION, TABLES, VERSIONS


def migrate_schema(connection: Connection) -> None:
    """Create or migrate the schema, if needed, within the connection's transaction.

    Errors: ``StorageUnavailable`` when a newer version of Headgate has written it.
    """
    if not inspect(connection).has_table(VERSIONS.name):
        TABLES.create_all(connection)
        VERSIONS.create(connection)
        connection.execute(insert(VERSIONS).values(version_num=SCHEMA_VERSION))
        return
    version = connection.scalar(select(VERSIONS.c.version_num))
    if version == SCHEMA_VERSION:
        return
    if version not in OLDER_VERSIONS:
        msg = (
            f"the metadata store has schema {version}, this Headgate knows up to "
            f"{SCHEMA_VERSION}: start the newer Headgate that wrote it"
        )
        raise StorageUnavailable(msg)
    # By name, so that only those who need a migration pay for alembic (50 ms and 6 MB).
    import_module("gateway.metadata.migrations.upgrade").upgrade(connection)
