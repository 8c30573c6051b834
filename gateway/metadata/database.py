"""The metadata store's database: one worker thread, one connection, one transaction a call.

The event loop never waits for a database. A write raises the revision of metadata in its
transaction (``gateway.metadata.change_rows``).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar
from uuid import uuid4

import structlog
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import SQLAlchemyError

from gateway.errors import Overloaded, StorageUnavailable
from gateway.metadata import change_rows
from gateway.metadata.change_model import MetadataChange
from gateway.metadata.feed import ChangeFeed
from gateway.metadata.versions import migrate_schema
from gateway.sql import engines as sql
from gateway.sql.integrity_check import check_sqlite
from gateway.sql.statement_timeout import ConnectionTimeout

CALLS_MAX: Final = 10_000  # waiting for the worker thread; more are refused

log = structlog.get_logger()

_T = TypeVar("_T")
_P = ParamSpec("_P")


class MetadataDatabase:
    """Database of ``SqlMetadata``, which has the meaning of the arguments and the errors.

    ``feed`` learns the revision at the opening, and that of each write. Loop only.
    """

    def __init__(
        self, url: str, *, data_dir: Path, ms_max: int, check_ms_max: int, feed: ChangeFeed
    ) -> None:
        self.url = sql.engine_url(url, data_dir)
        self._feed = feed
        self._writer = uuid4().hex
        self._known = 0  # thread only: up to here all writes are this process's, or were seen
        self._ms_max = ms_max
        self._check_ms_max = check_ms_max
        self._watch = ConnectionTimeout()
        self._engine: Engine | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
        self._calls = 0
        self._is_closed = False
        self._logged_s = -1

    async def open(self) -> None:
        """See ``MetadataStore``. A schema newer than this version's is refused."""
        self._feed.seen = await self.in_thread(self._open)

    async def close(self) -> None:
        """See ``MetadataStore``. A second time does nothing."""
        if not self._is_closed:
            await self.in_thread(self._dispose)
            self._is_closed = True
            self._thread.shutdown(wait=False)

    async def run(
        self,
        work: Callable[Concatenate[Connection, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Do ``work`` in the worker thread, as one transaction."""

        def transaction() -> _T:
            assert self._engine is not None, "open comes first"
            with self._watch.limited(self._ms_max), self._engine.begin() as connection:
                return work(connection, *args, **kwargs)

        return await self.in_thread(transaction)

    async def write(
        self,
        change: MetadataChange,
        work: Callable[Concatenate[Connection, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Do as ``run``, and raise the revision. Error: ``MetadataChanged``, with nothing done."""
        seen = self._feed.seen

        def transaction() -> tuple[_T, int]:
            assert self._engine is not None, "open comes first"
            known = max(seen, self._known)
            with self._watch.limited(self._ms_max), self._engine.begin() as connection:
                revision, is_next = change_rows.raise_revision(
                    connection, change, known=known, writer=self._writer
                )
                result = work(connection, *args, **kwargs)
            if is_next:
                self._known = revision
            return result, revision

        result, self._feed.written = await self.in_thread(transaction)
        return result

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        """Do ``work`` in the worker thread. Errors: ``StorageUnavailable``, ``Overloaded``."""
        if self._is_closed:
            msg = "the metadata store is closed"
            raise StorageUnavailable(msg)
        if self._calls >= CALLS_MAX:
            msg = f"{CALLS_MAX} calls wait for the metadata store"
            raise Overloaded(msg)
        self._calls += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (SQLAlchemyError, OSError) as error:
            text = self._text(error)
            self._log_failure(text)
            raise StorageUnavailable(f"metadata store: {text}") from error
        finally:
            self._calls -= 1

    def _log_failure(self, text: str) -> None:
        """Log the cause of a failure, at most once a second; clients do not see it."""
        second = int(asyncio.get_running_loop().time())
        if second != self._logged_s:
            self._logged_s = second
            log.warning("metadata store failed", error=text)

    def _text(self, error: Exception) -> str:
        if self._watch.is_over:
            return f"no answer within {self._ms_max} ms, the connection was cut"
        return str(error)

    def _open(self) -> int:
        self._engine = sql.make_engine(self.url)
        self._watch.follow(self._engine)
        # A hundred thousand topics take their time: it is each statement that must be answered.
        event.listen(self._engine, "before_cursor_execute", lambda *_: self._watch.renew())
        sql.bound_statements(self._engine, self._ms_max)
        try:
            with self._engine.begin() as connection:
                self._check(connection)
                migrate_schema(connection)
                return change_rows.current_revision(connection)
        except SQLAlchemyError as error:
            engine = self._engine
            self._dispose()
            if not _is_sqlite(engine):
                raise
            text = f"metadata store: {engine.url.database}: {sql.one_line(error)}"
            raise StorageUnavailable(text) from error
        except BaseException:
            self._dispose()
            raise

    def _check(self, connection: Connection) -> None:
        path = connection.engine.url.database
        if self._check_ms_max and path and _is_sqlite(connection.engine):
            check_sqlite(connection, path, self._check_ms_max)

    def _dispose(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
            self._watch.leave()


def _is_sqlite(engine: Engine) -> bool:
    return engine.dialect.name == "sqlite"
