"""The metadata store in SQL: SQLite by default, PostgreSQL for a fleet (SQLAlchemy Core).

All statements run in one worker thread, in the order of the calls; the event loop never waits
for a database. SQLite syncs at every commit (WAL journal, ``synchronous=FULL``), so that a
topic that was answered for is there after a power cut.
"""

import asyncio
import base64
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from gateway import metadata_queue_rows as queue_rows
from gateway import metadata_topic_rows as topic_rows
from gateway import metadata_user_rows as user_rows
from gateway.auth import Rule
from gateway.errors import Overloaded, StorageUnavailable
from gateway.metadata import AccessKey, Address, DeletedRange, PartitionRange, TopicRow
from gateway.metadata_versions import bring_up
from gateway.queue_model import QueueRow
from gateway.scram import ScramCredential

CALLS_MAX: Final = 10_000  # waiting for the worker thread; more are refused
BUSY_TIMEOUT_MS: Final = 5_000  # how long SQLite waits for another process, a backup say
CONNECT_TIMEOUT_S: Final = 10
DATA_UUID: Final = "data_uuid"
CLUSTER_ID: Final = "cluster_id"
FILE_NAME: Final = "metadata.sqlite"

_T = TypeVar("_T")
_P = ParamSpec("_P")


class SqlMetadata:
    """A ``MetadataStore`` in a database.

    ``url`` is an SQLAlchemy URL, or ``sqlite`` for a file in ``data_dir``.
    Errors of the driver come out as ``StorageUnavailable`` with the driver's own words.
    """

    def __init__(self, url: str, *, data_dir: Path) -> None:
        self._path = data_dir / FILE_NAME if url == "sqlite" else None
        self._url = f"sqlite:///{self._path}" if self._path else url
        self._engine: Engine | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
        self._calls = 0
        self._is_closed = False

    async def open(self) -> None:
        """See ``MetadataStore``. A schema newer than this version's is refused."""
        await self._in_thread(self._open)

    async def close(self) -> None:
        """See ``MetadataStore``. A second time does nothing."""
        if not self._is_closed:
            await self._in_thread(self._dispose)
            self._is_closed = True
            self._thread.shutdown(wait=False)

    async def data_uuid(self) -> UUID | None:
        """See ``MetadataStore``."""
        text = await self._run(user_rows.get_value, DATA_UUID)
        return None if text is None else UUID(text)

    async def set_data_uuid(self, data_uuid: UUID) -> None:
        """See ``MetadataStore``."""
        await self._run(user_rows.set_value, DATA_UUID, str(data_uuid))

    async def cluster_id(self) -> str:
        """See ``MetadataStore``."""
        return await self.once(CLUSTER_ID, _new_cluster_id())

    async def once(self, key: str, value: str) -> str:
        """See ``MetadataStore``."""
        return await self._run(user_rows.set_once, key, value)

    async def reserve_ids(self, counter: str, count: int) -> int:
        """See ``MetadataStore``."""
        return await self._run(topic_rows.reserve_ids, counter, count)

    async def topics(self) -> list[TopicRow]:
        """See ``MetadataStore``."""
        return await self._run(topic_rows.load_topics)

    async def create_topic(self, row: TopicRow, *, partitions: int) -> TopicRow:
        """See ``MetadataStore``."""
        return await self._run(topic_rows.create_topic, row, partitions)

    async def add_partitions(
        self, uuid: UUID, *, first_number: int, count: int
    ) -> PartitionRange:
        """See ``MetadataStore``."""
        return await self._run(
            topic_rows.add_partitions, uuid, first_number=first_number, count=count
        )

    async def set_topic_configs(self, uuid: UUID, configs: Mapping[str, str]) -> None:
        """See ``MetadataStore``."""
        await self._run(topic_rows.set_topic_configs, uuid, configs)

    async def delete_topic(self, uuid: UUID, *, deleted_unix_ms: int) -> None:
        """See ``MetadataStore``."""
        await self._run(topic_rows.delete_topic, uuid, deleted_unix_ms)

    async def deleted_ranges(self) -> list[DeletedRange]:
        """See ``MetadataStore``."""
        return await self._run(topic_rows.load_deleted)

    async def forget_deleted(self, uuid: UUID) -> None:
        """See ``MetadataStore``."""
        await self._run(topic_rows.forget_deleted, uuid)

    async def restore(
        self,
        topics: Sequence[TopicRow],
        deleted: Sequence[DeletedRange],
        *,
        outdated: Sequence[UUID] = (),
        next_partition_id: int,
    ) -> None:
        """See ``MetadataStore``."""
        await self._run(topic_rows.restore, topics, deleted, outdated, next_partition_id)

    async def addresses(self) -> list[Address]:
        """See ``MetadataStore``."""
        return await self._run(topic_rows.load_addresses)

    async def put_address(self, address: Address) -> None:
        """See ``MetadataStore``."""
        await self._run(topic_rows.put_address, address)

    async def delete_address(self, namespace: str, protocol: str, native_name: str) -> None:
        """See ``MetadataStore``."""
        await self._run(topic_rows.delete_address, namespace, protocol, native_name)

    async def queues(self) -> list[QueueRow]:
        """See ``MetadataStore``."""
        return await self._run(queue_rows.load_queues)

    async def put_queue(self, row: QueueRow) -> None:
        """See ``MetadataStore``."""
        await self._run(queue_rows.put_queue, row)

    async def delete_queue(self, topic_uuid: UUID, group: str) -> bool:
        """See ``MetadataStore``."""
        return await self._run(queue_rows.delete_queue, topic_uuid, group)

    async def users(self) -> dict[str, list[ScramCredential]]:
        """See ``MetadataStore``."""
        return await self._run(user_rows.load_users)

    async def put_user(self, name: str, credentials: Iterable[ScramCredential]) -> None:
        """See ``MetadataStore``."""
        await self._run(user_rows.put_user, name, credentials)

    async def delete_user(self, name: str) -> bool:
        """See ``MetadataStore``."""
        return await self._run(user_rows.delete_user, name)

    async def access_keys(self) -> list[AccessKey]:
        """See ``MetadataStore``."""
        return await self._run(user_rows.load_access_keys)

    async def put_access_key(self, key: AccessKey) -> None:
        """See ``MetadataStore``."""
        await self._run(user_rows.put_access_key, key)

    async def delete_access_key(self, key_id: str) -> bool:
        """See ``MetadataStore``."""
        return await self._run(user_rows.delete_access_key, key_id)

    async def rules(self) -> list[Rule]:
        """See ``MetadataStore``."""
        return await self._run(user_rows.load_rules)

    async def add_rules(self, rules: Sequence[Rule]) -> None:
        """See ``MetadataStore``."""
        await self._run(user_rows.add_rules, rules)

    async def delete_rules(self, rules: Sequence[Rule]) -> None:
        """See ``MetadataStore``."""
        await self._run(user_rows.delete_rules, rules)

    async def _run(
        self,
        work: Callable[Concatenate[Connection, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Do ``work`` in the worker thread, as one transaction."""

        def transaction() -> _T:
            assert self._engine is not None, "open comes first"
            with self._engine.begin() as connection:
                return work(connection, *args, **kwargs)

        return await self._in_thread(transaction)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
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
            msg = f"metadata store: {error}"
            raise StorageUnavailable(msg) from error
        finally:
            self._calls -= 1

    def _open(self) -> None:
        if self._path is not None:
            _make_private_file(self._path)
        self._engine = _make_engine(self._url)
        try:
            with self._engine.begin() as connection:
                bring_up(connection)
        except BaseException:
            self._dispose()
            raise

    def _dispose(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None


def _new_cluster_id() -> str:
    while True:
        text = base64.urlsafe_b64encode(uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):  # or a command line would take it for an option
            return text


def _make_private_file(path: Path) -> None:
    """Make an empty file that only we may read: passwords' keys will be in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # the file's name must survive a power cut, as the log's names do
    finally:
        os.close(folder)


def _make_engine(url: str) -> Engine:
    """Return an engine with one connection, for one thread."""
    if make_url(url).get_backend_name() != "sqlite":
        return create_engine(
            url,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,  # the server may have been restarted since the last call
            connect_args={"connect_timeout": CONNECT_TIMEOUT_S},
        )
    engine = create_engine(url, pool_size=1, max_overflow=0)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI's, untyped
    # Without this, sqlite3 begins transactions by its own rules: DDL would be outside of them.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS}",  # first: the next one may meet a lock already
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE: a transaction that reads first and writes later could not wait for the lock.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
