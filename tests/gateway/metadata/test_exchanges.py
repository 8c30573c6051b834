"""Exchanges and bindings in the metadata store."""

from uuid import UUID, uuid4

import pytest

from gateway.errors import TopicNotFound
from gateway.exchanges.model import BindingRow, ExchangeName, ExchangeRow
from gateway.metadata.sql import SqlMetadata
from gateway.metadata.store import PartitionRange, TopicRow
from gateway.model import TopicName

LOGS = ExchangeName("default", "logs")


def exchange(name: ExchangeName = LOGS, *, created_unix_ms: int = 1_700) -> ExchangeRow:
    return ExchangeRow(
        name,
        "topic",
        '{"a":1}',
        auto_delete=True,
        is_internal=False,
        created_unix_ms=created_unix_ms,
    )


def binding(topic_uuid: UUID | None, destination: str = "work", key: str = "k") -> BindingRow:
    return BindingRow(LOGS, destination, topic_uuid, key, "{}")


async def made_topic(store: SqlMetadata, name: str) -> TopicRow:
    row = TopicRow(
        uuid4(),
        TopicName("default", name),
        is_internal=False,
        created_unix_ms=1_700,
        ranges=(),
        configs={},
    )
    return await store.create_topic(row, partitions=1)


async def test_an_exchange_is_replaced_and_removed(metadata: SqlMetadata) -> None:
    other = exchange(ExchangeName("other", "logs"), created_unix_ms=5)
    await metadata.put_exchange(exchange())
    await metadata.put_exchange(other)
    changed = exchange()._replace(type="fanout")
    await metadata.put_exchange(changed)

    assert await metadata.exchanges() == [other, changed]
    assert await metadata.delete_exchange(LOGS)
    assert not await metadata.delete_exchange(LOGS)
    assert await metadata.exchanges() == [other]


async def test_bindings_go_with_either_end(metadata: SqlMetadata) -> None:
    topic = await made_topic(metadata, "work")
    second = await made_topic(metadata, "second")
    to_work, to_second = binding(topic.uuid), binding(second.uuid, "second")
    to_logs = BindingRow(ExchangeName("default", "x"), "logs", None, "", "{}")
    elsewhere = BindingRow(ExchangeName("other", "x"), "logs", None, "", "{}")
    for row in (to_work, to_second, to_logs, elsewhere):
        await metadata.add_binding(row)
    assert await metadata.bindings() == [to_work, to_second, to_logs, elsewhere]

    await metadata.delete_topic(topic.uuid, deleted_unix_ms=9)
    assert await metadata.bindings() == [to_second, to_logs, elsewhere]
    await metadata.delete_exchange(LOGS)
    assert await metadata.bindings() == [elsewhere]


async def test_one_of_several_bindings_is_removed(metadata: SqlMetadata) -> None:
    topic = await made_topic(metadata, "work")
    for key in ("a", "b"):
        await metadata.add_binding(binding(topic.uuid, key=key))

    assert await metadata.delete_binding(binding(topic.uuid, key="a"))
    assert not await metadata.delete_binding(binding(topic.uuid, key="a"))
    assert await metadata.bindings() == [binding(topic.uuid, key="b")]


async def test_a_binding_needs_its_topic(metadata: SqlMetadata) -> None:
    with pytest.raises(TopicNotFound):
        await metadata.add_binding(binding(uuid4()))
    assert await metadata.bindings() == []


async def test_bindings_survive_a_recovery_of_their_topic(metadata: SqlMetadata) -> None:
    kept, gone = await made_topic(metadata, "work"), await made_topic(metadata, "gone")
    await metadata.add_binding(binding(kept.uuid))
    await metadata.add_binding(binding(gone.uuid, "gone"))
    rebuilt = kept._replace(ranges=(PartitionRange(0, 500, 1),))

    await metadata.restore([rebuilt], [], outdated=[gone.uuid], next_partition_id=600)

    assert await metadata.bindings() == [binding(kept.uuid)]
