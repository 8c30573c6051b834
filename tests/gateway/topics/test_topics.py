"""Topics in memory over a real SQLite file: durable first, shared creation, hooks, restarts."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import ManualClock
from gateway.config.settings import TopicDefaults
from gateway.contributions import built_in_topics
from gateway.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopicName,
    Overloaded,
    PolicyViolation,
    StorageUnavailable,
    TopicExists,
    TopicNotFound,
)
from gateway.metadata.changes import CHANGES_MAX, Changes
from gateway.metadata.sql import SqlMetadata
from gateway.metadata.store import PartitionRange, ProtocolAddress
from gateway.model import PartitionIdentity, TopicName
from gateway.topics.addresses import AddressBook
from gateway.topics.configs import parse_settings
from gateway.topics.index import Topic, TopicIndex
from gateway.topics.manager import TopicManager

ORDERS = TopicName("default", "orders")
CURSORS = TopicName("default", "__cursors")


@pytest.fixture
async def metadata(tmp_path: Path) -> AsyncIterator[SqlMetadata]:
    store = SqlMetadata("sqlite", data_dir=tmp_path)
    await store.open()
    yield store
    await store.close()


async def manager(metadata: SqlMetadata, **defaults: object) -> TopicManager:
    topics = TopicManager(
        metadata, defaults=TopicDefaults.model_validate(defaults), clock=ManualClock()
    )
    await topics.load()
    return topics


async def test_a_topic_is_found_by_name_uuid_and_partition_id(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)

    topic = await topics.create(ORDERS, partitions=3)

    assert topics.find(ORDERS) is topics.get(ORDERS) is topics.by_uuid(topic.uuid) is topic
    assert len(topic.partition_ids) == len(topic.partitions) == 3
    assert topics.identify(topic.partition_ids[2]) == PartitionIdentity(
        topic.partition_ids[2], topic.uuid, ORDERS, 2
    )
    assert topics.revision == 1


async def test_what_is_not_there_is_not_found(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)

    assert topics.find(ORDERS) is None
    with pytest.raises(TopicNotFound):
        topics.get(ORDERS)
    with pytest.raises(TopicNotFound):
        topics.identify(1)
    with pytest.raises(TopicNotFound):
        await topics.delete(ORDERS)
    with pytest.raises(TopicNotFound):
        await topics.add_partitions(ORDERS, 5)
    with pytest.raises(TopicNotFound):
        await topics.alter_configs(ORDERS, {})


async def test_topics_are_the_same_after_a_restart(metadata: SqlMetadata) -> None:
    before = await manager(metadata)
    created = await before.create(ORDERS, partitions=2, configs={"retention.ms": "5"})
    await before.create(CURSORS, internal=True, configs={"cleanup.policy": "compact"})
    await before.add_partitions(ORDERS, 4)
    await before.alter_configs(ORDERS, {"retention.bytes": "6"})

    after = await manager(metadata)

    topic = after.get(ORDERS)
    assert topic is not created
    assert topic.uuid == created.uuid
    assert topic.partition_ids == created.partition_ids
    assert topic.configs == {"retention.ms": "5", "retention.bytes": "6"}
    assert topic.settings == created.settings
    assert after.get(CURSORS).is_internal
    assert after.partition_count == 5


async def test_a_topic_shows_only_once_it_is_durable(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)
    seen_in_sql: list[bool] = []

    async def watch() -> None:
        while topics.find(ORDERS) is None:
            rows = await metadata.topics()  # waits behind the creation in the worker thread
            seen_in_sql.append(bool(rows))

    await asyncio.gather(topics.create(ORDERS), watch())

    assert seen_in_sql[-1]


async def test_of_many_who_create_a_topic_one_does(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)

    outcomes = await asyncio.gather(
        *(topics.create(ORDERS) for _ in range(50)), return_exceptions=True
    )

    assert sum(isinstance(outcome, Topic) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, TopicExists) for outcome in outcomes) == 49
    assert len(await metadata.topics()) == 1


async def test_all_who_auto_create_a_topic_get_the_same(metadata: SqlMetadata) -> None:
    topics = await manager(metadata, partitions=4)

    found = await asyncio.gather(
        *(topics.auto_create(ORDERS) for _ in range(50)),
        topics.create(TopicName("default", "other")),
        topics.auto_create(ORDERS),
    )

    assert len({id(topic) for topic in found}) == 2
    assert len(topics.get(ORDERS).partition_ids) == 4
    assert await topics.auto_create(ORDERS) is topics.get(ORDERS)
    assert topics.revision == 2


async def test_an_auto_creation_that_comes_second_is_content(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)

    created, found = await asyncio.gather(topics.create(ORDERS), topics.auto_create(ORDERS))

    assert created is found


async def test_auto_creation_can_be_off_and_refuses_bad_names(metadata: SqlMetadata) -> None:
    off = await manager(metadata, auto_create=False)
    with pytest.raises(TopicNotFound):
        await off.auto_create(ORDERS)

    topics = await manager(metadata)
    with pytest.raises(InvalidTopicName):
        await topics.auto_create(TopicName("default", "a/b"))
    with pytest.raises(InvalidTopicName):
        await topics.auto_create(CURSORS)
    assert topics.everything() == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "ä", "x" * 250, *sorted(built_in_topics())]
)
async def test_an_illegal_or_reserved_name_is_refused(metadata: SqlMetadata, name: str) -> None:
    topics = await manager(metadata)

    with pytest.raises(InvalidTopicName):
        await topics.create(TopicName("default", name))


async def test_names_that_kafkas_metrics_cannot_tell_apart_are_refused(
    metadata: SqlMetadata,
) -> None:
    topics = await manager(metadata)
    await topics.create(TopicName("default", "a.b_c"))

    with pytest.raises(InvalidTopicName, match=r"collides with existing topic a\.b_c"):
        await topics.create(TopicName("default", "a_b.c"))

    await topics.create(TopicName("other", "a_b.c"))
    await topics.delete(TopicName("default", "a.b_c"))
    await topics.create(TopicName("default", "a_b.c"))


@pytest.mark.parametrize("partitions", [0, -1, 8])
async def test_partition_counts_are_bounded(metadata: SqlMetadata, partitions: int) -> None:
    topics = await manager(metadata, partitions_max=10)
    await topics.create(TopicName("default", "__producers"), partitions=1, internal=True)
    await topics.create(TopicName("default", "first"), partitions=3)

    with pytest.raises(InvalidPartitions):
        await topics.create(ORDERS, partitions=partitions)

    await topics.create(ORDERS, partitions=7)
    await topics.create(CURSORS, partitions=2, internal=True)
    with pytest.raises(InvalidPartitions):
        await topics.add_partitions(ORDERS, 8)


@pytest.mark.parametrize("total", [0, 2, 3])
async def test_partitions_only_grow(metadata: SqlMetadata, total: int) -> None:
    topics = await manager(metadata)
    topic = await topics.create(ORDERS, partitions=3)

    with pytest.raises(InvalidPartitions):
        await topics.add_partitions(ORDERS, total)

    assert len(topic.partition_ids) == 3


async def test_added_partitions_are_known(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)
    topic = await topics.create(ORDERS, partitions=1)
    await topics.create(TopicName("default", "between"))

    await topics.add_partitions(ORDERS, 3)

    assert [topics.identify(one).number for one in topic.partition_ids] == [0, 1, 2]
    assert len(set(topic.partition_ids)) == len(topic.partitions) == 3


async def test_validate_only_changes_nothing(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)
    await topics.create(ORDERS)
    other = TopicName("default", "other")

    topic = await topics.create(other, partitions=6, validate_only=True)
    await topics.add_partitions(ORDERS, 9, validate_only=True)
    await topics.alter_configs(ORDERS, {"retention.ms": "5"}, validate_only=True)
    with pytest.raises(InvalidConfig):
        await topics.create(other, configs={"retention.ms": "x"}, validate_only=True)

    assert len(topic.partition_ids) == 6
    assert topics.find(other) is None
    assert len(topics.get(ORDERS).partition_ids) == 1
    assert topics.get(ORDERS).configs == {}
    assert topics.revision == 1


async def test_configs_are_changed_one_by_one_or_as_a_whole(metadata: SqlMetadata) -> None:
    topics = await manager(metadata, configs={"retention.ms": "9"})
    topic = await topics.create(ORDERS, configs={"retention.ms": "5", "retention.bytes": "6"})

    await topics.alter_configs(ORDERS, {"retention.ms": None, "flush.ms": "7"})
    assert topic.configs == {"retention.bytes": "6", "flush.ms": "7"}
    assert topic.settings.retention_ms == 9

    await topics.alter_configs(ORDERS, {"flush.ms": "8"}, replace=True)
    assert topic.configs == {"flush.ms": "8"}
    assert topic.settings.retention_bytes == -1

    with pytest.raises(InvalidConfig, match="did you mean retention"):
        await topics.alter_configs(ORDERS, {"retention.mss": None})
    assert {entry.name: entry.value for entry in topics.describe_configs(topic)}[
        "flush.ms"
    ] == "8"


async def test_bad_defaults_are_refused_at_once(metadata: SqlMetadata) -> None:
    with pytest.raises(InvalidConfig, match="retention"):
        await manager(metadata, configs={"retention.ms": "soon"})


async def test_internal_topics_are_hidden_and_left_alone(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)
    await topics.create(CURSORS, internal=True)
    await topics.create(ORDERS)

    assert [topic.name for topic in topics.topics()] == [ORDERS]
    assert [topic.name for topic in topics.topics(include_internal=True)] == [CURSORS, ORDERS]
    with pytest.raises(PolicyViolation):
        await topics.delete(CURSORS)
    with pytest.raises(PolicyViolation):
        await topics.add_partitions(CURSORS, 2)
    with pytest.raises(PolicyViolation):
        await topics.alter_configs(CURSORS, {"retention.ms": "1"})
    await topics.delete(CURSORS, internal=True)


async def test_topics_are_listed_by_name_and_namespace(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)
    for name in ("b", "a-2", "a"):
        await topics.create(TopicName("default", name))
    await topics.create(TopicName("vhost", "z"))

    assert [topic.name.name for topic in topics.topics()] == ["a", "a-2", "b"]
    await topics.delete(TopicName("default", "a-2"))
    assert [topic.name.name for topic in topics.topics()] == ["a", "b"]
    assert [topic.name.name for topic in topics.topics("vhost")] == ["z"]
    assert topics.topics("none") == []
    assert len(topics.everything()) == 3


async def test_hooks_run_after_each_change(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)
    told: list[tuple[str, int, bool]] = []

    def hook(kind: str) -> None:
        hooks = topics.on_deleted if kind == "deleted" else topics.on_changed
        hooks.append(
            lambda topic: told.append(
                (kind, len(topic.partition_ids), topics.find(topic.name) is topic)
            )
        )

    hook("changed")
    hook("deleted")
    await topics.create(ORDERS, partitions=2)
    await topics.add_partitions(ORDERS, 3)
    await topics.alter_configs(ORDERS, {"retention.ms": "1"})
    await topics.delete(ORDERS)

    assert told == [
        ("changed", 2, True),
        ("changed", 3, True),
        ("changed", 3, True),
        ("deleted", 3, False),
    ]
    assert topics.revision == 4


async def test_a_deleted_topic_stays_identified_until_the_storage_is_done(
    metadata: SqlMetadata,
) -> None:
    topics = await manager(metadata)
    topic = await topics.create(ORDERS, partitions=2)
    await topics.add_partitions(ORDERS, 3)
    last = topic.partition_ids[2]
    await topics.delete(ORDERS)

    # The node crashes before the storage has logged the delete: the next start does it.
    restarted = await manager(metadata)
    assert restarted.find(ORDERS) is None
    assert restarted.identify(last).topic == topics.identify(last).topic == ORDERS
    assert {uuid: sorted(ids) for uuid, ids in restarted.pending_deletes().items()} == {
        topic.uuid: topic.partition_ids
    }

    restarted.forget(topic.uuid)
    await restarted.close()
    with pytest.raises(TopicNotFound):
        restarted.identify(last)
    assert restarted.pending_deletes() == {}
    assert (await manager(metadata)).pending_deletes() == {}


async def test_a_name_can_be_used_again_at_once(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)
    first = await topics.create(ORDERS)

    await topics.delete(ORDERS)
    second = await topics.create(ORDERS)

    assert second.uuid != first.uuid
    assert topics.identify(first.partition_ids[0]).topic_uuid == first.uuid
    assert topics.identify(second.partition_ids[0]).topic_uuid == second.uuid


async def test_a_caller_that_goes_away_does_not_undo_its_change(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)
    creation = asyncio.create_task(topics.create(ORDERS))
    failing = asyncio.create_task(topics.create(TopicName("default", "a b")))
    on_their_way = asyncio.Event()
    asyncio.get_running_loop().call_soon(on_their_way.set)
    await on_their_way.wait()

    creation.cancel()
    failing.cancel()
    await asyncio.gather(creation, failing, return_exceptions=True)
    await topics.close()

    assert topics.find(ORDERS) is not None
    assert [row.name for row in await metadata.topics()] == [ORDERS]


async def test_a_store_that_fails_leaves_the_topic_as_it_was(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)
    topic = await topics.create(ORDERS)
    await metadata.close()

    with pytest.raises(StorageUnavailable):
        await topics.create(TopicName("default", "other"))
    with pytest.raises(StorageUnavailable):
        await topics.auto_create(TopicName("default", "other"))
    with pytest.raises(StorageUnavailable):
        await topics.alter_configs(ORDERS, {"retention.ms": "1"})
    with pytest.raises(StorageUnavailable):
        await topics.delete(ORDERS)

    assert topics.everything() == [topic]
    assert topic.configs == {}
    assert topics.revision == 1


async def test_changes_that_wait_are_bounded() -> None:
    changes = Changes()
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    for _ in range(CHANGES_MAX):
        changes.start(wait)
    with pytest.raises(Overloaded):
        await changes.make(wait)

    gate.set()
    await changes.close()


async def test_addresses_live_as_long_as_their_topic(metadata: SqlMetadata) -> None:
    topics = await manager(metadata)
    book = AddressBook(metadata, topics)
    await book.load()
    topic = await topics.create(ORDERS)
    retry = ProtocolAddress("default", "rocketmq", "%RETRY%g", topic.uuid, "g")
    await book.put(retry._replace(group="other"))
    await book.put(retry)
    await book.put(retry._replace(native_name="gone"))
    await book.remove("default", "rocketmq", "gone")

    restarted = AddressBook(metadata, topics)
    await restarted.load()
    assert restarted.find("default", "rocketmq", "%RETRY%g") == retry
    assert restarted.find("default", "amqp", "%RETRY%g") is None
    assert restarted.find("default", "rocketmq", "gone") is None

    await topics.delete(ORDERS)
    assert book.find("default", "rocketmq", "%RETRY%g") is None
    assert await metadata.addresses() == []


def test_every_stream_of_the_gateways_own_is_reserved() -> None:
    """A metadata store that is rebuilt from the log knows internal topics by their names."""
    sources = Path(__file__).parents[2].joinpath("gateway").glob("*.py")
    named = {
        name
        for source in sources
        for name in re.findall(r'_TOPIC(?:: Final)? = "(__[a-z_]+)"', source.read_text())
    }

    assert named <= built_in_topics()


@given(data=st.data())
def test_the_index_agrees_with_a_plain_dict(data: st.DataObject) -> None:
    index = TopicIndex()
    known: dict[int, tuple[UUID, int]] = {}
    live: list[Topic] = []
    removed: list[Topic] = []
    next_id = 1
    for step in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["make", "grow", "remove", "forget"]))
        if action == "make":
            live.append(_topic(step))
            index.add(live[-1])
        if action in {"make", "grow"} and live:
            topic = data.draw(st.sampled_from(live))
            added = PartitionRange(
                len(topic.partition_ids), next_id, data.draw(st.integers(1, 5))
            )
            next_id += added.length + data.draw(st.integers(0, 2))
            index.add_partitions(topic, added)
            known |= {
                added.first_partition_id + at: (topic.uuid, added.first_number + at)
                for at in range(added.length)
            }
        if action == "remove" and live:
            removed.append(live.pop(data.draw(st.integers(0, len(live) - 1))))
            index.remove(removed[-1])
        if action == "forget" and removed:
            gone = removed.pop()
            index.forget(gone.uuid)
            known = {key: value for key, value in known.items() if value[0] != gone.uuid}

    for partition_id in range(next_id + 2):
        try:
            identity = index.identify(partition_id)
        except TopicNotFound:
            assert partition_id not in known
        else:
            assert known[partition_id] == (identity.topic_uuid, identity.number)
    assert index.partition_count == sum(len(topic.partition_ids) for topic in live)


def _topic(number: int) -> Topic:
    return Topic(
        UUID(int=number),
        TopicName("default", f"topic-{number}"),
        configs={},
        settings=parse_settings({}, {}),
        is_internal=False,
        created_unix_ms=0,
    )
