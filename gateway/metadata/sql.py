"""Metadata store in SQL: SQLite by default, PostgreSQL for a fleet (SQLAlchemy Core).

All statements run in one worker thread, in the order of the calls; the event loop never waits
for a database. SQLite syncs at every commit (WAL journal, ``synchronous=FULL``), so that a
topic that was answered for is there after a power cut.
"""

import asyncio
import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar
from uuid import UUID, uuid4

import structlog
from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import SQLAlchemyError

from features.quota.model import Entity, QuotaKey
from gateway.auth.password_hashes import Credential
from gateway.auth.ports import Rule
from gateway.config.settings import Settings
from gateway.errors import Overloaded, StorageUnavailable
from gateway.exchanges.model import BindingRow, ExchangeName, ExchangeRow
from gateway.metadata import (
    document_rows,
    exchange_rows,
    queue_rows,
    quota_rows,
    topic_rows,
    user_rows,
)
from gateway.metadata.store import (
    AccessKey,
    AccessSettings,
    DeletedRange,
    DocumentRow,
    PartitionRange,
    ProtocolAddress,
    TopicRow,
)
from gateway.metadata.versions import migrate_schema
from gateway.queues.model import QueueRow
from gateway.sql import engines as sql
from gateway.sql.integrity_check import check_sqlite
from gateway.sql.statement_timeout import ConnectionTimeout

MS_MAX: Final = 15_000  # of a statement
CHECK_MS_MAX: Final = 5_000  # of the look at SQLite's file at a start
CALLS_MAX: Final = 10_000  # waiting for the worker thread; more are refused
DATA_UUID: Final = "data_uuid"
CLUSTER_ID: Final = "cluster_id"
FILE_NAME: Final = sql.FILE_NAME

log = structlog.get_logger()

_T = TypeVar("_T")
_P = ParamSpec("_P")


class SqlMetadata:
    """``MetadataStore`` in a database.

    ``url`` is an SQLAlchemy URL, or ``sqlite`` for a file in ``data_dir``. ``ms_max`` bounds a
    statement, whatever the database does; connecting may take its own time (``gateway.sql``)
    in addition. Errors of the driver come out as ``StorageUnavailable`` with the driver's own
    words; whether what was cut at its end is done, who tries again will see.
    """

    def __init__(
        self,
        url: str,
        *,
        data_dir: Path,
        ms_max: int = MS_MAX,
        check_ms_max: int = CHECK_MS_MAX,
    ) -> None:
        self._url = sql.engine_url(url, data_dir)
        self._ms_max = ms_max
        self._check_ms_max = check_ms_max
        self._watch = ConnectionTimeout()
        self._engine: Engine | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
        self._calls = 0
        self._is_closed = False
        self._logged_s = -1

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the unopened store of a node's settings."""
        config = settings.metadata
        return cls(
            config.database_url,
            data_dir=settings.node.data_dir,
            ms_max=config.timeout_ms,
            check_ms_max=config.check_ms_max,
        )

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

    async def set_value(self, key: str, value: str) -> None:
        """See ``MetadataStore``."""
        await self._run(user_rows.set_value, key, value)

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

    async def addresses(self) -> list[ProtocolAddress]:
        """See ``MetadataStore``."""
        return await self._run(topic_rows.load_addresses)

    async def put_address(self, address: ProtocolAddress) -> None:
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

    async def exchanges(self) -> list[ExchangeRow]:
        """See ``MetadataStore``."""
        return await self._run(exchange_rows.load_exchanges)

    async def put_exchange(self, row: ExchangeRow) -> None:
        """See ``MetadataStore``."""
        await self._run(exchange_rows.put_exchange, row)

    async def delete_exchange(self, name: ExchangeName) -> bool:
        """See ``MetadataStore``."""
        return await self._run(exchange_rows.delete_exchange, name)

    async def bindings(self) -> list[BindingRow]:
        """See ``MetadataStore``."""
        return await self._run(exchange_rows.load_bindings)

    async def add_binding(self, row: BindingRow) -> None:
        """See ``MetadataStore``."""
        await self._run(exchange_rows.add_binding, row)

    async def delete_binding(self, row: BindingRow) -> bool:
        """See ``MetadataStore``."""
        return await self._run(exchange_rows.delete_binding, row)

    async def users(self) -> dict[str, list[Credential]]:
        """See ``MetadataStore``."""
        return await self._run(user_rows.load_users)

    async def put_user(
        self,
        name: str,
        credentials: Iterable[Credential],
        *,
        administers: bool | None = None,
        requires_login: bool = False,
    ) -> None:
        """See ``MetadataStore``."""
        await self._run(
            user_rows.put_user,
            name,
            credentials,
            administers=administers,
            requires_login=requires_login,
        )

    async def delete_user(self, name: str) -> bool:
        """See ``MetadataStore``."""
        return await self._run(user_rows.delete_user, name)

    async def access_settings(self) -> AccessSettings:
        """See ``MetadataStore``."""
        return await self._run(user_rows.load_access_settings)

    async def set_required(self, *, required: bool) -> None:
        """See ``MetadataStore``."""
        await self._run(user_rows.set_required, required=required)

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

    async def quotas(self) -> dict[Entity, dict[QuotaKey, float]]:
        """See ``MetadataStore``."""
        return await self._run(quota_rows.load_quotas)

    async def change_quotas(
        self, entity: Entity, changes: Mapping[QuotaKey, float | None]
    ) -> None:
        """See ``MetadataStore``."""
        await self._run(quota_rows.change_quotas, entity, changes)

    async def documents(self) -> list[DocumentRow]:
        """See ``MetadataStore``."""
        return await self._run(document_rows.load_documents)

    async def put_document(self, document: DocumentRow) -> None:
        """See ``MetadataStore``."""
        await self._run(document_rows.put_document, document)

    async def delete_document(self, kind: str, namespace: str, name: str) -> bool:
        """See ``MetadataStore``."""
        return await self._run(document_rows.delete_document, kind, namespace, name)

    async def _run(
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

    def _open(self) -> None:
        self._engine = sql.make_engine(self._url)
        self._watch.follow(self._engine)
        # A hundred thousand topics take their time: it is each statement that must be answered.
        event.listen(self._engine, "before_cursor_execute", lambda *_: self._watch.renew())
        sql.bound_statements(self._engine, self._ms_max)
        try:
            with self._engine.begin() as connection:
                self._check(connection)
                migrate_schema(connection)
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


def _new_cluster_id() -> str:
    while True:
        text = base64.urlsafe_b64encode(uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):  # or a command line would take it for an option
            return text
