"""Revisions of metadata, on SQLite and PostgreSQL: raised by writes, read by other nodes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from features.quota.model import Entity, QuotaKey
from gateway.auth.access_keys import AccessKey
from gateway.auth.ports import Operation, PatternKind, ResourceType, Rule
from gateway.auth.scram import ScramCredential, ScramMechanism
from gateway.errors import TopicExists
from gateway.exchanges.model import BindingRow, ExchangeName, ExchangeRow
from gateway.metadata import change_rows
from gateway.metadata.change_model import ChangeKind, MetadataChanged, change_of
from gateway.metadata.sql import SqlMetadata
from gateway.metadata.store import DocumentRow, ProtocolAddress, TopicRow
from gateway.model import TopicName
from gateway.queues.model import QueueRow, QueueSettings

CREDENTIAL = ScramCredential(ScramMechanism.SHA_256, b"salt", 4096, b"stored", b"server")
RULE = Rule("alice", Operation.READ, ResourceType.TOPIC, PatternKind.ANY, "")
LOGS = ExchangeName("default", "logs")


@pytest.fixture
async def other(
    metadata: SqlMetadata,  # noqa: ARG001 - which makes the schema
    url: str,
    tmp_path: Path,
) -> AsyncIterator[SqlMetadata]:
    """The store as another node has it."""
    store = SqlMetadata(url, data_dir=tmp_path)
    await store.open()
    yield store
    await store.close()


def topic_row(name: str = "orders", uuid: UUID | None = None) -> TopicRow:
    topic = TopicName("default", name)
    return TopicRow(uuid or uuid4(), topic, False, 1_700, (), {})  # noqa: FBT003


def writes(
    store: SqlMetadata, topic: UUID
) -> dict[ChangeKind, list[Callable[[], Awaitable[object]]]]:
    """Return every write of each kind."""
    address = ProtocolAddress("default", "amqp", "q", topic, None)
    queue = QueueRow(topic, "g", QueueSettings(), {}, {}, False, 1, 1)  # noqa: FBT003
    exchange = ExchangeRow(LOGS, "fanout", "{}", False, False, 1)  # noqa: FBT003
    binding = BindingRow(LOGS, "orders", topic, "", "{}")
    document = DocumentRow("policy", "default", "all", "{}")
    return {
        ChangeKind.TOPIC: [
            lambda: store.create_topic(topic_row("new", uuid4()), partitions=1),
            lambda: store.add_partitions(topic, first_number=1, count=2),
            lambda: store.set_topic_configs(topic, {"retention.ms": "5"}),
            lambda: store.restore((), (), next_partition_id=50),
        ],
        ChangeKind.ADDRESS: [
            lambda: store.put_address(address),
            lambda: store.delete_address("default", "amqp", "q"),
        ],
        ChangeKind.QUEUE: [
            lambda: store.put_queue(queue),
            lambda: store.delete_queue(topic, "g"),
        ],
        ChangeKind.EXCHANGE: [
            lambda: store.put_exchange(exchange),
            lambda: store.add_binding(binding),
            lambda: store.delete_binding(binding),
            lambda: store.delete_exchange(LOGS),
        ],
        ChangeKind.USER: [
            lambda: store.put_user("alice", [CREDENTIAL]),
            lambda: store.delete_user("alice"),
            lambda: store.set_required(required=True),
        ],
        ChangeKind.ACCESS_KEY: [
            lambda: store.put_access_key(AccessKey("AKIA1", "secret", "alice", "")),
            lambda: store.delete_access_key("AKIA1"),
        ],
        ChangeKind.RULE: [
            lambda: store.add_rules([RULE]),
            lambda: store.delete_rules([RULE]),
        ],
        ChangeKind.QUOTA: [
            lambda: store.change_quotas(
                Entity("alice", None, None), {QuotaKey.PRODUCER_BYTE_RATE: 5.0}
            )
        ],
        ChangeKind.DOCUMENT: [
            lambda: store.put_document(document),
            lambda: store.delete_document("policy", "default", "all"),
        ],
    }


async def test_each_write_raises_the_revision_and_says_its_kind(metadata: SqlMetadata) -> None:
    topic = (await metadata.create_topic(topic_row(), partitions=1)).uuid
    all_writes = writes(metadata, topic)
    seen = metadata.feed.written

    for kind, of_kind in all_writes.items():
        for write in of_kind:
            await write()
            found = await metadata.changes_since(seen)
            assert (found.revision, set(found.keys or ())) == (seen + 1, {kind.value})
            assert metadata.feed.written == found.revision
            seen += 1

    assert set(all_writes) == set(ChangeKind)
    assert await metadata.changes_since(seen) == (seen, {})


async def test_a_deletion_is_a_change_of_its_key(
    metadata: SqlMetadata, other: SqlMetadata
) -> None:
    created = await metadata.create_topic(topic_row(), partitions=1)
    kept = await metadata.create_topic(topic_row("kept"), partitions=1)
    seen = metadata.feed.written

    await metadata.delete_topic(created.uuid, deleted_unix_ms=9)

    found = await other.changes_since(seen)
    key = change_of(ChangeKind.TOPIC, created.uuid.hex).key
    assert found.keys == {"topic": frozenset([key])}
    assert await other.topics({created.uuid, kept.uuid}) == [kept]


async def test_a_write_that_another_node_has_overtaken_is_refused(
    metadata: SqlMetadata, other: SqlMetadata
) -> None:
    await metadata.create_topic(topic_row("a.b"), partitions=1)

    with pytest.raises(MetadataChanged):  # its name may collide with one that is not known here
        await other.create_topic(topic_row("a_b"), partitions=1)

    assert [row.name.name for row in await metadata.topics()] == ["a.b"]
    await other.feed.catch_up()
    await other.create_topic(topic_row("other"), partitions=1)


async def test_a_write_of_another_kind_is_not_overtaken(
    metadata: SqlMetadata, other: SqlMetadata
) -> None:
    await metadata.create_topic(topic_row(), partitions=1)

    await other.put_user("alice", [CREDENTIAL])

    assert await metadata.users() == {"alice": [CREDENTIAL]}
    with pytest.raises(MetadataChanged):
        await other.create_topic(topic_row("other"), partitions=1)


async def test_what_does_not_depend_on_memory_is_not_overtaken(
    metadata: SqlMetadata, other: SqlMetadata
) -> None:
    await metadata.put_user("alice", [CREDENTIAL])

    await other.set_required(required=True)

    assert (await metadata.access_settings()).required


async def test_a_refused_change_raises_nothing(metadata: SqlMetadata) -> None:
    await metadata.create_topic(topic_row(), partitions=1)
    before = (await metadata.changes_since(0)).revision

    with pytest.raises(TopicExists):
        await metadata.create_topic(topic_row(), partitions=1)

    assert (await metadata.changes_since(0)).revision == before


async def test_who_is_further_behind_than_changes_are_kept_reloads_everything(
    metadata: SqlMetadata, other: SqlMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_rows, "CHANGES_KEPT", 4)
    monkeypatch.setattr(change_rows, "PRUNED_EVERY", 2)
    for number in range(10):
        await metadata.put_document(DocumentRow("policy", "default", str(number), "{}"))

    assert (await other.changes_since(5)).keys is None
    kept = (await other.changes_since(6)).keys
    assert kept is not None
    assert len(kept["document"]) == 4
    with pytest.raises(MetadataChanged):  # of another kind, which it cannot know
        await other.put_user("alice", [CREDENTIAL])


async def test_a_store_that_was_restored_is_read_anew(metadata: SqlMetadata) -> None:
    await metadata.put_document(DocumentRow("policy", "default", "all", "{}"))

    assert await metadata.changes_since(700) == (1, None)


async def test_nodes_report_what_they_have_seen(
    metadata: SqlMetadata, other: SqlMetadata
) -> None:
    await metadata.report_seen(1, 5)
    await other.report_seen(2, 4)
    await metadata.report_seen(1, 6)

    assert await other.seen_revisions() == {1: 6, 2: 4}
