"""Metadata store in SQL: SQLite by default, PostgreSQL for a fleet (SQLAlchemy Core).

All statements run in one worker thread, in the order of the calls; the event loop never waits
for a database. SQLite syncs at every commit (WAL journal, ``synchronous=FULL``), so that a
topic that was answered for is there after a power cut.
"""

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self
from uuid import UUID, uuid4

from features.quota.model import Entity, QuotaKey
from gateway.auth.password_hashes import Credential
from gateway.auth.ports import Rule
from gateway.config.settings import Settings
from gateway.exchanges.model import BindingRow, ExchangeName, ExchangeRow
from gateway.metadata import (
    change_rows,
    document_rows,
    exchange_rows,
    queue_rows,
    quota_rows,
    topic_rows,
    user_rows,
)
from gateway.metadata.change_model import ChangeKind, ChangesSince, MetadataChange, change_of
from gateway.metadata.database import MetadataDatabase
from gateway.metadata.feed import ChangeFeed
from gateway.metadata.store import (
    AccessKey,
    AccessSettings,
    DeletedRange,
    DocumentRow,
    PartitionRange,
    ProtocolAddress,
    TopicRow,
)
from gateway.queues.model import QueueRow
from gateway.sql import engines as sql

MS_MAX: Final = 15_000  # of a statement
CHECK_MS_MAX: Final = 5_000  # of the look at SQLite's file at a start
DATA_UUID: Final = "data_uuid"
CLUSTER_ID: Final = "cluster_id"
FILE_NAME: Final = sql.FILE_NAME


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
        self.feed = ChangeFeed(self.changes_since)
        self._database = MetadataDatabase(
            url, data_dir=data_dir, ms_max=ms_max, check_ms_max=check_ms_max, feed=self.feed
        )

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
        await self._database.open()

    async def close(self) -> None:
        """See ``MetadataStore``. A second time does nothing."""
        await self._database.close()

    async def data_uuid(self) -> UUID | None:
        """See ``MetadataStore``."""
        text = await self._database.run(user_rows.get_value, DATA_UUID)
        return None if text is None else UUID(text)

    async def set_data_uuid(self, data_uuid: UUID) -> None:
        """See ``MetadataStore``."""
        await self._database.run(user_rows.set_value, DATA_UUID, str(data_uuid))

    async def cluster_id(self) -> str:
        """See ``MetadataStore``."""
        return await self.once(CLUSTER_ID, _new_cluster_id())

    async def once(self, key: str, value: str) -> str:
        """See ``MetadataStore``."""
        return await self._database.run(user_rows.set_once, key, value)

    async def set_value(self, key: str, value: str) -> None:
        """See ``MetadataStore``."""
        await self._database.run(user_rows.set_value, key, value)

    async def reserve_ids(self, counter: str, count: int) -> int:
        """See ``MetadataStore``."""
        return await self._database.run(topic_rows.reserve_ids, counter, count)

    async def changes_since(self, revision: int) -> ChangesSince:
        """See ``MetadataStore``."""
        return await self._database.run(change_rows.changes_since, revision)

    async def report_seen(self, node_id: int, revision: int) -> None:
        """See ``MetadataStore``."""
        await self._database.run(change_rows.report_seen, node_id, revision)

    async def seen_revisions(self) -> dict[int, int]:
        """See ``MetadataStore``."""
        return await self._database.run(change_rows.load_seen)

    async def topics(self, uuids: Collection[UUID] | None = None) -> list[TopicRow]:
        """See ``MetadataStore``."""
        return await self._database.run(topic_rows.load_topics, uuids)

    async def create_topic(self, row: TopicRow, *, partitions: int) -> TopicRow:
        """See ``MetadataStore``."""
        return await self._database.write(
            _topic(row.uuid), topic_rows.create_topic, row, partitions
        )

    async def add_partitions(
        self, uuid: UUID, *, first_number: int, count: int
    ) -> PartitionRange:
        """See ``MetadataStore``."""
        return await self._database.write(
            _topic(uuid),
            topic_rows.add_partitions,
            uuid,
            first_number=first_number,
            count=count,
        )

    async def set_topic_configs(self, uuid: UUID, configs: Mapping[str, str]) -> None:
        """See ``MetadataStore``."""
        await self._database.write(_topic(uuid), topic_rows.set_topic_configs, uuid, configs)

    async def delete_topic(self, uuid: UUID, *, deleted_unix_ms: int) -> None:
        """See ``MetadataStore``."""
        await self._database.write(_topic(uuid), topic_rows.delete_topic, uuid, deleted_unix_ms)

    async def deleted_ranges(self) -> list[DeletedRange]:
        """See ``MetadataStore``."""
        return await self._database.run(topic_rows.load_deleted)

    async def forget_deleted(self, uuid: UUID) -> None:
        """See ``MetadataStore``."""
        await self._database.run(topic_rows.forget_deleted, uuid)

    async def restore(
        self,
        topics: Sequence[TopicRow],
        deleted: Sequence[DeletedRange],
        *,
        outdated: Sequence[UUID] = (),
        next_partition_id: int,
    ) -> None:
        """See ``MetadataStore``."""
        await self._database.write(
            MetadataChange(ChangeKind.TOPIC),
            topic_rows.restore,
            topics,
            deleted,
            outdated,
            next_partition_id,
        )

    async def addresses(self) -> list[ProtocolAddress]:
        """See ``MetadataStore``."""
        return await self._database.run(topic_rows.load_addresses)

    async def put_address(self, address: ProtocolAddress) -> None:
        """See ``MetadataStore``."""
        await self._database.write(
            MetadataChange(ChangeKind.ADDRESS), topic_rows.put_address, address
        )

    async def delete_address(self, namespace: str, protocol: str, native_name: str) -> None:
        """See ``MetadataStore``."""
        await self._database.write(
            MetadataChange(ChangeKind.ADDRESS),
            topic_rows.delete_address,
            namespace,
            protocol,
            native_name,
        )

    async def queues(self, topic_uuids: Collection[UUID] | None = None) -> list[QueueRow]:
        """See ``MetadataStore``."""
        return await self._database.run(queue_rows.load_queues, topic_uuids)

    async def put_queue(self, row: QueueRow) -> None:
        """See ``MetadataStore``."""
        await self._database.write(_queue(row.topic_uuid), queue_rows.put_queue, row)

    async def delete_queue(self, topic_uuid: UUID, group: str) -> bool:
        """See ``MetadataStore``."""
        return await self._database.write(
            _queue(topic_uuid), queue_rows.delete_queue, topic_uuid, group
        )

    async def exchanges(self, names: Collection[str] | None = None) -> list[ExchangeRow]:
        """See ``MetadataStore``."""
        return await self._database.run(exchange_rows.load_exchanges, names)

    async def put_exchange(self, row: ExchangeRow) -> None:
        """See ``MetadataStore``."""
        await self._database.write(_exchange(row.name), exchange_rows.put_exchange, row)

    async def delete_exchange(self, name: ExchangeName) -> bool:
        """See ``MetadataStore``."""
        return await self._database.write(_exchange(name), exchange_rows.delete_exchange, name)

    async def bindings(self, sources: Collection[str] | None = None) -> list[BindingRow]:
        """See ``MetadataStore``."""
        return await self._database.run(exchange_rows.load_bindings, sources)

    async def add_binding(self, row: BindingRow) -> None:
        """See ``MetadataStore``."""
        await self._database.write(_exchange(row.source), exchange_rows.add_binding, row)

    async def delete_binding(self, row: BindingRow) -> bool:
        """See ``MetadataStore``."""
        return await self._database.write(
            _exchange(row.source), exchange_rows.delete_binding, row
        )

    async def users(self, names: Collection[str] | None = None) -> dict[str, list[Credential]]:
        """See ``MetadataStore``."""
        return await self._database.run(user_rows.load_users, names)

    async def put_user(
        self,
        name: str,
        credentials: Iterable[Credential],
        *,
        administers: bool | None = None,
        requires_login: bool = False,
    ) -> None:
        """See ``MetadataStore``."""
        await self._database.write(
            change_of(ChangeKind.USER, name),
            user_rows.put_user,
            name,
            credentials,
            administers=administers,
            requires_login=requires_login,
        )

    async def delete_user(self, name: str) -> bool:
        """See ``MetadataStore``."""
        return await self._database.write(
            change_of(ChangeKind.USER, name), user_rows.delete_user, name
        )

    async def access_settings(self) -> AccessSettings:
        """See ``MetadataStore``."""
        return await self._database.run(user_rows.load_access_settings)

    async def set_required(self, *, required: bool) -> None:
        """See ``MetadataStore``."""
        await self._database.write(
            change_of(ChangeKind.USER)._replace(is_judged=False),
            user_rows.set_required,
            required=required,
        )

    async def access_keys(self, key_ids: Collection[str] | None = None) -> list[AccessKey]:
        """See ``MetadataStore``."""
        return await self._database.run(user_rows.load_access_keys, key_ids)

    async def put_access_key(self, key: AccessKey) -> None:
        """See ``MetadataStore``."""
        await self._database.write(
            change_of(ChangeKind.ACCESS_KEY, key.key_id), user_rows.put_access_key, key
        )

    async def delete_access_key(self, key_id: str) -> bool:
        """See ``MetadataStore``."""
        return await self._database.write(
            change_of(ChangeKind.ACCESS_KEY, key_id), user_rows.delete_access_key, key_id
        )

    async def rules(self) -> list[Rule]:
        """See ``MetadataStore``."""
        return await self._database.run(user_rows.load_rules)

    async def add_rules(self, rules: Sequence[Rule]) -> None:
        """See ``MetadataStore``."""
        await self._database.write(MetadataChange(ChangeKind.RULE), user_rows.add_rules, rules)

    async def delete_rules(self, rules: Sequence[Rule]) -> None:
        """See ``MetadataStore``."""
        await self._database.write(
            MetadataChange(ChangeKind.RULE), user_rows.delete_rules, rules
        )

    async def quotas(self) -> dict[Entity, dict[QuotaKey, float]]:
        """See ``MetadataStore``."""
        return await self._database.run(quota_rows.load_quotas)

    async def change_quotas(
        self, entity: Entity, changes: Mapping[QuotaKey, float | None]
    ) -> None:
        """See ``MetadataStore``."""
        await self._database.write(
            MetadataChange(ChangeKind.QUOTA), quota_rows.change_quotas, entity, changes
        )

    async def documents(self, names: Collection[str] | None = None) -> list[DocumentRow]:
        """See ``MetadataStore``."""
        return await self._database.run(document_rows.load_documents, names)

    async def put_document(self, document: DocumentRow) -> None:
        """See ``MetadataStore``."""
        await self._database.write(
            _document(*document[:3]), document_rows.put_document, document
        )

    async def delete_document(self, kind: str, namespace: str, name: str) -> bool:
        """See ``MetadataStore``."""
        return await self._database.write(
            _document(kind, namespace, name),
            document_rows.delete_document,
            kind,
            namespace,
            name,
        )


def _new_cluster_id() -> str:
    while True:
        text = base64.urlsafe_b64encode(uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):  # or a command line would take it for an option
            return text


def _topic(uuid: UUID) -> MetadataChange:
    return change_of(ChangeKind.TOPIC, uuid.hex)


def _queue(topic_uuid: UUID) -> MetadataChange:
    return change_of(ChangeKind.QUEUE, topic_uuid.hex)


def _exchange(name: ExchangeName) -> MetadataChange:
    return change_of(ChangeKind.EXCHANGE, *name)


def _document(kind: str, namespace: str, name: str) -> MetadataChange:
    return change_of(ChangeKind.DOCUMENT, kind, namespace, name)
