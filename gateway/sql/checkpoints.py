"""Checkpoints of SQLite's journal in a thread, so that no commit waits for them.

A commit that finds the journal long copies all of it and syncs the file before it returns, and a
file that has grown waits for whatever else the file system has to write, 8 MiB objects of a server
beside us say. Copied often, the journal stays short and is written over in place: then a commit's
own sync, too, has bytes to wait for and no change of the file's size.
"""

import sqlite3
import threading
from typing import Final, Self

import structlog
from sqlalchemy import Engine, event
from sqlalchemy.exc import SQLAlchemyError

from gateway.sql.engines import make_engine, one_line

PAUSE_S: Final = 2.0
# Of SQLite's 4 KiB. So much the journal holds before a commit copies it after all: when the
# checkpoints beside fail, or readers that never end keep them from what is behind them.
PAGES_MAX: Final = 16_384
_JOIN_S_MAX: Final = 5.0  # a disk may hang

_log = structlog.get_logger()


class Checkpoints:
    """Checkpoint thread with its own connection, until ``close``; ``note`` reports commits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = make_engine(
            engine.url.render_as_string(hide_password=False), create=False
        )
        self._is_due = threading.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="headgate-checkpoints", daemon=True
        )
        event.listen(engine, "connect", _leave_to_others)
        self._thread.start()

    @classmethod
    def beside(cls, engine: Engine) -> Self | None:
        """Return the checkpoints of an unconnected engine; None unless it is SQLite."""
        return cls(engine) if engine.dialect.name == "sqlite" else None

    def note(self) -> None:
        """Report a commit. In any thread."""
        self._is_due.set()

    def close(self) -> None:
        """End the thread; a second time does nothing."""
        self._is_closed.set()
        self._is_due.set()
        self._thread.join(_JOIN_S_MAX)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            self._is_due.wait()
            if self._is_closed.wait(PAUSE_S):
                break
            self._is_due.clear()
            self._copy()
        self._engine.dispose()

    def _copy(self) -> None:
        try:
            connection = self._engine.raw_connection()
            try:
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").close()
            finally:
                connection.close()  # back into the pool
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            _log.warning("SQLite's journal was not copied", error=one_line(error))


def _leave_to_others(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_MAX}").close()
