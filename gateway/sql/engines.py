"""SQL engines: SQLite in a file, or PostgreSQL (SQLAlchemy Core).

An engine has one connection, for one thread. SQLite syncs at every commit (WAL journal,
``synchronous=FULL``). Sessions of PostgreSQL are bounded, so that a lock of a node that has died
or hangs does not stop the next one.
"""

import os
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from gateway.errors import StorageUnavailable
from gateway.installation import install_command

FILE_NAME: Final = "metadata.sqlite"
SYNCHRONOUS: Final = "FULL"  # SQLite returns from a commit when the disk has it
BUSY_TIMEOUT_MS: Final = 5_000  # how long SQLite waits for another process, a backup say
CONNECT_TIMEOUT_S: Final = 10
LOCK_TIMEOUT_MS: Final = 5_000  # how long PostgreSQL waits for another session's lock
# A session that holds locks and says nothing is ended by the server: its node may be dead, which
# TCP alone would find out after hours.
SILENT_TRANSACTION_MS_MAX: Final = 15_000
DEAD_PEER_MS: Final = 15_000  # a server that acknowledges no bytes for so long is given up

READS: Final = "headgate_reads"  # execution option: a transaction that only reads

_PEER_CHECKS: Final = {  # libpq's names; seconds but for the last
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": DEAD_PEER_MS,
}


def engine_url(url: str, data_dir: Path) -> str:
    """Return the SQLAlchemy URL of a config's ``url``; ``sqlite`` is a file.

    >>> engine_url("sqlite", Path("/var/lib/headgate"))
    'sqlite:////var/lib/headgate/metadata.sqlite'
    """
    return f"sqlite:///{data_dir / FILE_NAME}" if url == "sqlite" else url


def make_engine(url: str, *, create: bool = True) -> Engine:
    """Return an engine with one connection; a missing SQLite file is created private.

    Without ``create`` a file that is not there is an error. Errors: ``StorageUnavailable`` for a
    URL that nothing can be made of; ``OSError``.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite_engine(parsed, create=create)
        return _server_engine(parsed)
    except (ArgumentError, NoSuchModuleError) as error:
        # The driver's own words may hold the URL, and so its password.
        raise StorageUnavailable("the database's URL is not one of SQLAlchemy's") from error
    except ImportError as error:
        msg = f"{error.name or 'a driver'} is missing: {install_command('postgres')}"
        raise StorageUnavailable(msg) from error


def listen_parameters(url: str) -> dict[str, Any] | None:
    """Return the parameters of a connection of psycopg's own, for LISTEN; None elsewhere."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "postgresql" or parsed.get_driver_name() != "psycopg":
        return None
    found = parsed.get_dialect()().create_connect_args(parsed)[1]
    return {**_PEER_CHECKS, **found}


def reading(engine: Engine) -> Engine:
    """Return the same engine for read-only transactions, each of one snapshot."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{READS: True})
    return engine.execution_options(isolation_level="REPEATABLE READ")


def bound_statements(engine: Engine, ms_max: int) -> None:
    """Set PostgreSQL's statement timeout, since it does not notice a closed connection.

    It does not count for COMMIT: a wait for a replica that ended early would be a lie.
    """
    if engine.dialect.name != "postgresql":
        return

    def set_up(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI's, untyped
        cursor = connection.cursor()
        cursor.execute(f"SET statement_timeout = {ms_max}")
        cursor.close()
        connection.commit()

    event.listen(engine, "connect", set_up)


def one_line(error: BaseException) -> str:
    """Return a driver's error text, without the statement and its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    return " ".join(str(cause).split()) or type(cause).__name__


def _sqlite_engine(url: URL, *, create: bool) -> Engine:
    path = url.database
    if path and path != ":memory:" and not path.startswith("file:"):
        if create:
            _make_private_file(Path(path))
        elif not Path(path).exists():
            raise StorageUnavailable(f"{path}: there is no such database")
    engine = create_engine(url, pool_size=1, max_overflow=0, hide_parameters=True)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _server_engine(url: URL) -> Engine:
    is_postgres = url.get_backend_name() == "postgresql"
    checks = _PEER_CHECKS if is_postgres else {"connect_timeout": CONNECT_TIMEOUT_S}
    engine = create_engine(
        url,
        pool_size=1,
        max_overflow=0,
        pool_pre_ping=True,  # the server may have been restarted since the last call
        hide_parameters=True,  # credentials are among them
        isolation_level="READ COMMITTED",
        # What the URL says itself counts.
        connect_args={name: value for name, value in checks.items() if name not in url.query},
    )
    if is_postgres:
        event.listen(engine, "connect", _set_up_postgres)
    return engine


def _make_private_file(path: Path) -> None:
    """Create an empty private file, as it will hold credentials."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # the file's name must survive a power cut, as the log's names do
    finally:
        os.close(folder)


def _set_up_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI's, untyped
    # Without this, sqlite3 begins transactions by its own rules: DDL would be outside of them.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS}",  # first: the next one may meet a lock already
        "journal_mode = WAL",
        f"synchronous = {SYNCHRONOUS}",
        "foreign_keys = ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE: a transaction that reads first and writes later could not wait for the lock.
    reads = connection.get_execution_options().get(READS, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _set_up_postgres(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI's, untyped
    cursor = connection.cursor()
    cursor.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
    cursor.execute(f"SET idle_in_transaction_session_timeout = {SILENT_TRANSACTION_MS_MAX}")
    cursor.close()
    connection.commit()  # or the first rollback would undo it
