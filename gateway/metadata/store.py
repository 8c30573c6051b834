"""Port of the metadata store: topics, queues, exchanges, users, rules, counters.

Every method is a coroutine that does its work elsewhere than on the event loop's thread, and is
one transaction: when it returns, what it changed survives a crash of the machine. Any of them
raises ``StorageUnavailable`` when the store cannot be reached or refuses; then nothing has
changed, except after a connection lost during the commit, which nobody can tell from here.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from features.quota.model import Entity, QuotaKey
from gateway.auth.password_hashes import Credential
from gateway.auth.ports import Rule
from gateway.errors import StorageUnavailable
from gateway.exchanges.model import BindingRow, ExchangeName, ExchangeRow
from gateway.metadata.change_model import ChangesSince
from gateway.metadata.feed import ChangeFeed
from gateway.model import TopicName
from gateway.queues.model import QueueRow

PRODUCER_IDS: Final = "producer_id"
PARTITION_IDS: Final = "partition_id"
PRODUCER_ID_BLOCK: Final = 1_000
PARTITION_ID_MAX: Final = 2**32 - 1


class PartitionRange(NamedTuple):
    """``length`` partitions with consecutive numbers and consecutive ids."""

    first_number: int
    first_partition_id: int
    length: int


class TopicRow(NamedTuple):
    """Stored topic. ``ranges`` are in order of partition number, without gaps."""

    uuid: UUID
    name: TopicName
    is_internal: bool
    created_unix_ms: int
    ranges: tuple[PartitionRange, ...]
    configs: dict[str, str]


class DeletedRange(NamedTuple):
    """Partitions of a deleted topic that the storage has not deleted yet."""

    topic_uuid: UUID
    topic: TopicName
    range: PartitionRange


class ProtocolAddress(NamedTuple):
    """Protocol's own name for a topic, or for a topic and group."""

    namespace: str
    protocol: str
    native_name: str
    topic_uuid: UUID
    group: str | None


class AccessKey(NamedTuple):
    """Access key for signed requests, and its principal.

    ``user``: a principal's name, with or without a password. ``account``: in protocols with
    accounts, the account of the key; empty for the default one.
    """

    key_id: str
    secret: str
    user: str
    account: str

    def __repr__(self) -> str:
        """Return the fields without the secret, for logs."""
        return f"AccessKey({self.key_id!r}, user={self.user!r}, account={self.account!r})"


class AccessSettings(NamedTuple):
    """Stored settings of access. ``default`` is None in a directory made by this version."""

    required: bool
    default: str | None
    administrators: frozenset[str]


class DocumentRow(NamedTuple):
    """Small setting with a kind and a name; ``value`` is JSON. The namespace may be empty."""

    kind: str
    namespace: str
    name: str
    value: str


class MetadataStore(Protocol):
    """See the module.

    Writes of what is read from memory raise the store's revision. One that was judged by memory
    which another node has made stale raises ``MetadataChanged``, with nothing done.
    """

    feed: ChangeFeed
    """Changes of other nodes, for the managers that keep rows in memory."""

    async def open(self) -> None:
        """Connect, and migrate the schema to this version."""
        ...

    async def close(self) -> None:
        """Close connections and end threads."""
        ...

    async def data_uuid(self) -> UUID | None:
        """Return the uuid of the data directory that this store belongs to; None when new."""
        ...

    async def set_data_uuid(self, data_uuid: UUID) -> None:
        """Bind this store to a data directory."""
        ...

    async def cluster_id(self) -> str:
        """Return the cluster's name, chosen once: 22 characters of base64url."""
        ...

    async def once(self, key: str, value: str) -> str:
        """Return the first value of ``key``; set it to ``value`` if it has none."""
        ...

    async def set_value(self, key: str, value: str) -> None:
        """Set ``key``, which may have had another value."""
        ...

    async def reserve_ids(self, counter: str, count: int) -> int:
        """Reserve ``count`` ids of ``counter``, never given again; return the first."""
        ...

    async def changes_since(self, revision: int) -> ChangesSince:
        """Return the keys of rows that were written after a revision."""
        ...

    async def report_seen(self, node_id: int, revision: int) -> None:
        """Store the revision up to which a node's memory has what is stored."""
        ...

    async def seen_revisions(self) -> dict[int, int]:
        """Return the reported revisions, by node; nodes that have ended are among them."""
        ...

    async def topics(self, uuids: Collection[UUID] | None = None) -> list[TopicRow]:
        """Return all topics, or those of ``uuids``."""
        ...

    async def create_topic(self, row: TopicRow, *, partitions: int) -> TopicRow:
        """Store a topic whose ``ranges`` are yet empty; returns it with its partitions.

        Errors: ``TopicExists``.
        """
        ...

    async def add_partitions(
        self, uuid: UUID, *, first_number: int, count: int
    ) -> PartitionRange:
        """Store more partitions of a topic. Errors: ``TopicNotFound``."""
        ...

    async def set_topic_configs(self, uuid: UUID, configs: Mapping[str, str]) -> None:
        """Replace all overrides of a topic by ``configs``. Errors: ``TopicNotFound``."""
        ...

    async def delete_topic(self, uuid: UUID, *, deleted_unix_ms: int) -> None:
        """Remove a topic and remember its partitions as deleted. Errors: ``TopicNotFound``."""
        ...

    async def deleted_ranges(self) -> list[DeletedRange]:
        """Return the partitions that were deleted and not yet forgotten."""
        ...

    async def forget_deleted(self, uuid: UUID) -> None:
        """Forget a deleted topic, after the storage has logged the deletion of its partitions."""
        ...

    async def restore(
        self,
        topics: Sequence[TopicRow],
        deleted: Sequence[DeletedRange],
        *,
        outdated: Sequence[UUID] = (),
        next_partition_id: int,
    ) -> None:
        """Store rebuilt rows, in place of those of equal name or uuid.

        Topics that are ``outdated`` are removed, and leave no deleted partitions behind.
        """
        ...

    async def addresses(self) -> list[ProtocolAddress]:
        """Return all addresses."""
        ...

    async def put_address(self, address: ProtocolAddress) -> None:
        """Store an address, in place of one of the same name. Errors: ``TopicNotFound``."""
        ...

    async def delete_address(self, namespace: str, protocol: str, native_name: str) -> None:
        """Remove an address; one that is not there is no error."""
        ...

    async def queues(self, topic_uuids: Collection[UUID] | None = None) -> list[QueueRow]:
        """Return all queues, or those of some topics, in no order."""
        ...

    async def put_queue(self, row: QueueRow) -> None:
        """Store a queue, in place of one of the same topic and group.

        A queue goes with its topic. Errors: ``TopicNotFound``.
        """
        ...

    async def delete_queue(self, topic_uuid: UUID, group: str) -> bool:
        """Remove a queue; says whether there was one."""
        ...

    async def exchanges(self, names: Collection[str] | None = None) -> list[ExchangeRow]:
        """Return all exchanges, or those of these names in any namespace, oldest first."""
        ...

    async def put_exchange(self, row: ExchangeRow) -> None:
        """Store an exchange, in place of one of the same name."""
        ...

    async def delete_exchange(self, name: ExchangeName) -> bool:
        """Remove an exchange and its bindings; says whether there was one."""
        ...

    async def bindings(self, sources: Collection[str] | None = None) -> list[BindingRow]:
        """Return all bindings, or those from exchanges of these names, oldest first."""
        ...

    async def add_binding(self, row: BindingRow) -> None:
        """Store a binding that is not there; one to a topic goes with the topic.

        Errors: ``TopicNotFound``.
        """
        ...

    async def delete_binding(self, row: BindingRow) -> bool:
        """Remove a binding; says whether there was one."""
        ...

    async def users(self, names: Collection[str] | None = None) -> dict[str, list[Credential]]:
        """Return all users, or those of these names, with their credentials."""
        ...

    async def put_user(
        self,
        name: str,
        credentials: Iterable[Credential],
        *,
        administers: bool | None = None,
        requires_login: bool = False,
    ) -> None:
        """Store a user with these credentials and no others.

        ``administers``: whether it is an administrator; None: as before. ``requires_login``:
        everybody must log in from now on.
        """
        ...

    async def delete_user(self, name: str) -> bool:
        """Remove a user and its access keys; says whether there was such a user.

        It is no administrator any more either.
        """
        ...

    async def access_settings(self) -> AccessSettings:
        """Return the administrators, whether login is required, and the default of rules."""
        ...

    async def set_required(self, *, required: bool) -> None:
        """Store whether login is required."""
        ...

    async def access_keys(self, key_ids: Collection[str] | None = None) -> list[AccessKey]:
        """Return all access keys, or those of these ids, in no order."""
        ...

    async def put_access_key(self, key: AccessKey) -> None:
        """Store an access key, in place of one of the same id."""
        ...

    async def delete_access_key(self, key_id: str) -> bool:
        """Remove an access key; says whether there was one."""
        ...

    async def rules(self) -> list[Rule]:
        """Return all rules, oldest first."""
        ...

    async def add_rules(self, rules: Sequence[Rule]) -> None:
        """Store rules; one that is there already is no error."""
        ...

    async def delete_rules(self, rules: Sequence[Rule]) -> None:
        """Remove rules; one that is not there is no error."""
        ...

    async def quotas(self) -> dict[Entity, dict[QuotaKey, float]]:
        """Return all client quotas, in no order."""
        ...

    async def change_quotas(
        self, entity: Entity, changes: Mapping[QuotaKey, float | None]
    ) -> None:
        """Set quotas of an entity; None removes one, which need not be there."""
        ...

    async def documents(self, names: Collection[str] | None = None) -> list[DocumentRow]:
        """Return the documents of all kinds, or those of these names."""
        ...

    async def put_document(self, document: DocumentRow) -> None:
        """Insert or replace a document."""
        ...

    async def delete_document(self, kind: str, namespace: str, name: str) -> bool:
        """Remove a document and say whether there was one."""
        ...


class ProducerIds:
    """Source of unique producer ids, from blocks that the store reserves.

    What is left of a block at a stop is lost; there are 2^63 ids. Loop only.
    """

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._left = range(0)
        self._refill = asyncio.Lock()

    async def next(self) -> int:
        """Return a new producer id. Errors: ``StorageUnavailable``, ``Overloaded``."""
        if not self._left:
            async with self._refill:
                if not self._left:  # else who had the lock before us has filled it
                    first = await self._metadata.reserve_ids(PRODUCER_IDS, PRODUCER_ID_BLOCK)
                    self._left = range(first, first + PRODUCER_ID_BLOCK)
                return self._take()
        return self._take()

    def _take(self) -> int:
        producer_id = self._left[0]
        self._left = self._left[1:]
        return producer_id


async def reconcile(metadata: MetadataStore, data_uuid: UUID, *, log_is_empty: bool) -> None:
    """Check that the store and the log belong together; bind a new store to a new log.

    ``data_uuid`` is the storage's. Errors: ``StorageUnavailable``, whose text names the way
    out: the store belongs to another data directory, or is new while the log holds data (it was
    lost, or the config points to another).
    """
    known = await metadata.data_uuid()
    if known == data_uuid:
        return
    if known is not None:
        msg = (
            f"the metadata store belongs to data directory {known}, the log is of {data_uuid}: "
            "set [metadata] url and [node] data_dir to a pair, or rebuild the store's topics "
            "from the log with `headgate recover-metadata`"
        )
        raise StorageUnavailable(msg)
    if not log_is_empty:
        msg = (
            f"the log of data directory {data_uuid} holds data, but the metadata store is new: "
            "bring the store back, or rebuild its topics from the log with "
            "`headgate recover-metadata`"
        )
        raise StorageUnavailable(msg)
    await metadata.set_data_uuid(data_uuid)
