"""Queues and access keys in the metadata store, and the migration that brings their tables."""

import sqlite3
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import create_engine, insert, text

from features.queue.model import Order
from gateway.auth.scram import ScramCredential, ScramMechanism
from gateway.errors import StorageUnavailable, TopicNotFound
from gateway.metadata.migrations.upgrade import upgrade
from gateway.metadata.recovery import QueuePlace, parse_lane_id, restore_queues
from gateway.metadata.schema import SCHEMA_VERSION, TOPICS
from gateway.metadata.sql import SqlMetadata
from gateway.metadata.store import AccessKey, TopicRow
from gateway.model import TopicName
from gateway.queues.journal import lane_id
from gateway.queues.model import EarlierDelay, QueueRow, QueueSettings

CREDENTIAL = ScramCredential(ScramMechanism.SHA_256, b"\0salt", 4096, b"stored\xff", b"server")


async def made_topic(store: SqlMetadata, name: str = "work") -> UUID:
    return (await store.create_topic(topic_row(name), partitions=1)).uuid


def topic_row(name: str) -> TopicRow:
    full_name = TopicName("default", name)
    return TopicRow(
        uuid4(), full_name, is_internal=False, created_unix_ms=1_700, ranges=(), configs={}
    )


def queue_row(topic_uuid: UUID, group: str = "@queue", **settings: object) -> QueueRow:
    return QueueRow(
        topic_uuid,
        group,
        QueueSettings.model_validate(settings),
        attributes={"sqs.Policy": '{"a": "\u00e9"}'},
        tags={"team": "billing"},
        owns_topic=True,
        created_unix_ms=1_763_000_000_001,
        changed_unix_ms=1_763_000_000_002,
    )


async def test_queues_are_there_after_a_restart(
    metadata: SqlMetadata, url: str, tmp_path: Path
) -> None:
    topic_uuid = await made_topic(metadata)
    queue = queue_row(topic_uuid, order=Order.KEY, lease_ms=5_000, dead_letter_topic="dead")
    second = queue_row(topic_uuid, "audit")._replace(
        earlier_delays=(EarlierDelay((7, 0), 900_000, 1_763_000_000_003),)
    )
    await metadata.put_queue(queue)
    await metadata.put_queue(second)
    await metadata.close()

    again = SqlMetadata(url, data_dir=tmp_path)
    await again.open()

    assert sorted(await again.queues(), key=lambda row: row.group) == [queue, second]
    await again.close()


async def test_a_queue_replaces_that_of_its_topic_and_group(metadata: SqlMetadata) -> None:
    topic_uuid = await made_topic(metadata)
    other = queue_row(topic_uuid, "other")
    await metadata.put_queue(queue_row(topic_uuid, lease_ms=1_000))
    await metadata.put_queue(other)

    changed = queue_row(topic_uuid, lease_ms=2_000)._replace(tags={})
    await metadata.put_queue(changed)

    assert sorted(await metadata.queues(), key=lambda row: row.group) == [changed, other]


async def test_a_queue_needs_its_topic_and_goes_with_it(metadata: SqlMetadata) -> None:
    with pytest.raises(TopicNotFound):
        await metadata.put_queue(queue_row(uuid4()))
    topic_uuid, kept = await made_topic(metadata), await made_topic(metadata, "kept")
    await metadata.put_queue(queue_row(topic_uuid))
    await metadata.put_queue(queue_row(kept))

    await metadata.delete_topic(topic_uuid, deleted_unix_ms=9)

    assert await metadata.queues() == [queue_row(kept)]


async def test_a_queue_is_deleted_once(metadata: SqlMetadata) -> None:
    topic_uuid = await made_topic(metadata)
    await metadata.put_queue(queue_row(topic_uuid))

    assert not await metadata.delete_queue(topic_uuid, "other")
    assert await metadata.delete_queue(topic_uuid, "@queue")
    assert not await metadata.delete_queue(topic_uuid, "@queue")
    assert await metadata.queues() == []


async def test_default_settings_are_not_stored(
    sqlite_store: SqlMetadata, tmp_path: Path
) -> None:
    """A later version's better default must reach the queues of today."""
    topic_uuid = await made_topic(sqlite_store)
    await sqlite_store.put_queue(queue_row(topic_uuid, lease_ms=7_000))

    with sqlite3.connect(tmp_path / "metadata.sqlite") as connection:
        [(stored,)] = connection.execute("SELECT settings FROM queues")
    connection.close()

    assert stored == '{"lease_ms":7000}'


@pytest.mark.parametrize("stored", ['{"lease_ms": -1}', '{"unknown": 1}', "no JSON"])
async def test_what_is_no_queue_is_said_to_be_so(
    sqlite_store: SqlMetadata, tmp_path: Path, stored: str
) -> None:
    topic_uuid = await made_topic(sqlite_store)
    await sqlite_store.put_queue(queue_row(topic_uuid))
    with sqlite3.connect(tmp_path / "metadata.sqlite") as connection:
        connection.execute("UPDATE queues SET settings = ?", (stored,))
    connection.close()

    with pytest.raises(StorageUnavailable, match=f"queue {topic_uuid}"):
        await sqlite_store.queues()


async def test_access_keys_are_there_after_a_restart(
    metadata: SqlMetadata, url: str, tmp_path: Path
) -> None:
    key = AccessKey("AKIATEST", "s3cret/+=", "alice", "111122223333")
    await metadata.put_access_key(key._replace(secret="older"))
    await metadata.put_access_key(key)
    await metadata.close()

    again = SqlMetadata(url, data_dir=tmp_path)
    await again.open()

    assert await again.access_keys() == [key]
    assert await again.delete_access_key("AKIATEST")
    assert not await again.delete_access_key("AKIATEST")
    assert await again.access_keys() == []
    await again.close()


async def test_access_keys_stay_with_a_new_password_and_go_with_the_user(
    metadata: SqlMetadata,
) -> None:
    await metadata.put_user("alice", [CREDENTIAL])
    keys = [AccessKey(f"KEY{name}", "s", name, "") for name in ("alice", "bob")]
    for key in keys:
        await metadata.put_access_key(key)

    await metadata.put_user("alice", [CREDENTIAL._replace(salt=b"other")])
    kept = await metadata.access_keys()
    await metadata.delete_user("alice")

    assert sorted(kept) == keys
    assert await metadata.access_keys() == keys[1:]


async def test_a_store_of_the_first_schema_is_brought_up_with_what_it_holds(
    url: str, tmp_path: Path
) -> None:
    real_url = f"sqlite:///{tmp_path / 'metadata.sqlite'}" if url == "sqlite" else url
    topic_uuid = uuid4()
    engine = create_engine(real_url)
    with engine.begin() as connection:
        upgrade(connection, "0001")
        values = {"uuid": topic_uuid, "namespace": "default", "name": "work"}
        connection.execute(
            insert(TOPICS).values(is_internal=False, created_unix_ms=1_700, **values)
        )
    engine.dispose()

    store = SqlMetadata(url, data_dir=tmp_path)
    await store.open()
    await store.put_queue(queue_row(topic_uuid))

    assert [row.name.name for row in await store.topics()] == ["work"]
    assert await store.queues() == [queue_row(topic_uuid)]
    await store.close()
    engine = create_engine(real_url)
    with engine.connect() as connection:
        assert (
            connection.scalar(text("SELECT version_num FROM alembic_version")) == SCHEMA_VERSION
        )
    engine.dispose()


async def test_recovery_keeps_the_queues_of_topics_that_keep_their_uuid(
    metadata: SqlMetadata,
) -> None:
    kept, gone = await made_topic(metadata), await made_topic(metadata, "gone")
    await metadata.put_queue(queue_row(kept))
    await metadata.put_queue(queue_row(gone))
    [row] = [row for row in await metadata.topics() if row.uuid == kept]
    heir = topic_row("gone")._replace(ranges=(row.ranges[0]._replace(first_partition_id=9),))

    await metadata.restore([row, heir], [], next_partition_id=20)

    assert await metadata.queues() == [queue_row(kept)]


async def test_queues_of_the_journal_are_put_back_without_settings(
    metadata: SqlMetadata,
) -> None:
    lost, kept = await made_topic(metadata), await made_topic(metadata, "kept")
    await metadata.put_queue(queue_row(kept, lease_ms=9_000))
    lane = lane_id(lost, 3, "@queue")
    places = [parse_lane_id(lane), QueuePlace(kept, "@queue"), QueuePlace(uuid4(), "@queue")]

    found = await restore_queues(metadata, filter(None, places), created_unix_ms=5)

    assert found == sorted([QueuePlace(lost, "@queue"), QueuePlace(kept, "@queue")])
    rows = {row.topic_uuid: row for row in await metadata.queues()}
    assert rows[kept] == queue_row(kept, lease_ms=9_000)
    assert rows[lost] == QueueRow(
        lost,
        "@queue",
        QueueSettings(),
        {},
        {},
        owns_topic=False,
        created_unix_ms=5,
        changed_unix_ms=5,
    )


async def test_a_rebuilt_queue_that_is_called_fifo_keeps_its_order(
    metadata: SqlMetadata,
) -> None:
    jobs = await made_topic(metadata, "jobs.fifo")

    await restore_queues(metadata, [QueuePlace(jobs, "@queue")])

    [row] = await metadata.queues()
    assert row.settings == QueueSettings(order=Order.KEY)


@pytest.mark.parametrize("key", [b"", b"short", bytes(20), bytes(20) + b"\xff"])
def test_a_key_of_the_journal_that_names_no_queue_is_passed_over(key: bytes) -> None:
    assert parse_lane_id(key) is None
