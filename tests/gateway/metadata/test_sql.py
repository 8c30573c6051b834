"""The metadata store over real databases: SQLite always, PostgreSQL where it is installed."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from adapters.mqtt.rule_types import FILTER, MQTT_TOPIC
from gateway.auth.ports import Operation, PatternKind, ResourceType, Rule
from gateway.auth.scram import ScramCredential, ScramMechanism
from gateway.errors import StorageUnavailable, TopicExists, TopicNotFound
from gateway.metadata.migrations.upgrade import make_config, upgrade
from gateway.metadata.recovery import restore_topics
from gateway.metadata.schema import SCHEMA_VERSION, TABLES
from gateway.metadata.sql import SqlMetadata
from gateway.metadata.store import (
    PRODUCER_ID_BLOCK,
    PartitionRange,
    ProducerIds,
    ProtocolAddress,
    TopicRow,
    reconcile,
)
from gateway.model import PartitionIdentity, TopicName

ORDERS = TopicName("default", "orders")
CREDENTIAL = ScramCredential(ScramMechanism.SHA_256, b"\0salt", 4096, b"stored\xff", b"server")


def topic_row(name: TopicName = ORDERS, **configs: str) -> TopicRow:
    renamed = {key.replace("_", "."): value for key, value in configs.items()}
    return TopicRow(
        uuid4(), name, is_internal=False, created_unix_ms=1_700, ranges=(), configs=renamed
    )


async def reopened(store: SqlMetadata, url: str, tmp_path: Path) -> SqlMetadata:
    await store.close()
    again = SqlMetadata(url, data_dir=tmp_path)
    await again.open()
    return again


async def test_what_was_stored_is_there_after_a_restart(
    metadata: SqlMetadata, url: str, tmp_path: Path
) -> None:
    created = await metadata.create_topic(topic_row(retention_ms="5"), partitions=3)
    await metadata.put_user("alice", [CREDENTIAL])
    rule = Rule(
        "alice", Operation.READ, ResourceType.TOPIC, PatternKind.PREFIX, "a", allow=False
    )
    for_mqtt = Rule("*", Operation.ALL, MQTT_TOPIC, FILTER, "a/%c/#", client="dev1")
    await metadata.add_rules([rule, rule, for_mqtt, for_mqtt, for_mqtt._replace(client="*")])
    address = ProtocolAddress("default", "rocketmq", "%RETRY%g", created.uuid, "g")
    await metadata.put_address(address)

    again = await reopened(metadata, url, tmp_path)

    assert await again.topics() == [created]
    assert created.configs == {"retention.ms": "5"}
    assert created.ranges == (PartitionRange(0, 1, 3),)
    assert await again.users() == {"alice": [CREDENTIAL]}
    assert await again.rules() == [rule, for_mqtt, for_mqtt._replace(client="*")]
    assert await again.addresses() == [address]
    await again.close()


async def test_partition_ids_are_never_used_again(metadata: SqlMetadata) -> None:
    first = await metadata.create_topic(topic_row(), partitions=100_000)
    await metadata.delete_topic(first.uuid, deleted_unix_ms=9)

    second = await metadata.create_topic(topic_row(), partitions=2)
    added = await metadata.add_partitions(second.uuid, first_number=2, count=7)

    assert second.ranges == (PartitionRange(0, 100_001, 2),)
    assert added == PartitionRange(2, 100_003, 7)
    [row] = await metadata.topics()
    assert row.ranges == (*second.ranges, added)


async def test_two_topics_of_one_name_are_refused(metadata: SqlMetadata) -> None:
    await metadata.create_topic(topic_row(), partitions=1)
    other_namespace = topic_row(TopicName("other", ORDERS.name))
    await metadata.create_topic(other_namespace, partitions=1)

    with pytest.raises(TopicExists):
        await metadata.create_topic(topic_row(), partitions=1)

    assert len(await metadata.topics()) == 2


async def test_a_deleted_topics_partitions_are_remembered_until_forgotten(
    metadata: SqlMetadata,
) -> None:
    created = await metadata.create_topic(topic_row(retention_ms="5"), partitions=3)
    await metadata.put_address(ProtocolAddress("default", "amqp", "q/1", created.uuid, None))

    await metadata.delete_topic(created.uuid, deleted_unix_ms=9)

    [gone] = await metadata.deleted_ranges()
    assert (gone.topic_uuid, gone.topic, gone.range) == (
        created.uuid,
        ORDERS,
        PartitionRange(0, 1, 3),
    )
    assert await metadata.topics() == []
    assert await metadata.addresses() == []
    await metadata.forget_deleted(created.uuid)
    assert await metadata.deleted_ranges() == []


async def test_what_is_not_there_cannot_be_changed(metadata: SqlMetadata) -> None:
    unknown = uuid4()

    with pytest.raises(TopicNotFound):
        await metadata.delete_topic(unknown, deleted_unix_ms=9)
    with pytest.raises(TopicNotFound):
        await metadata.set_topic_configs(unknown, {"retention.ms": "5"})
    with pytest.raises(TopicNotFound):
        await metadata.add_partitions(unknown, first_number=1, count=1)
    with pytest.raises(TopicNotFound):
        await metadata.put_address(ProtocolAddress("default", "amqp", "q", unknown, None))


async def test_configs_are_replaced_as_a_whole(metadata: SqlMetadata) -> None:
    created = await metadata.create_topic(topic_row(retention_ms="5"), partitions=1)

    await metadata.set_topic_configs(created.uuid, {"segment.ms": "7", "flush.ms": "8"})

    [row] = await metadata.topics()
    assert row.configs == {"segment.ms": "7", "flush.ms": "8"}


async def test_users_are_replaced_and_removed(metadata: SqlMetadata) -> None:
    stronger = CREDENTIAL._replace(mechanism=ScramMechanism.SHA_512, salt=b"other")
    await metadata.put_user("alice", [CREDENTIAL, stronger])
    await metadata.put_user("bob", [CREDENTIAL])

    await metadata.put_user("alice", [stronger])

    assert await metadata.users() == {"alice": [stronger], "bob": [CREDENTIAL]}
    assert await metadata.delete_user("alice")
    assert not await metadata.delete_user("alice")
    assert await metadata.users() == {"bob": [CREDENTIAL]}


async def test_rules_are_removed_by_what_they_say(metadata: SqlMetadata) -> None:
    rules = [
        Rule("alice", Operation.READ, ResourceType.TOPIC, PatternKind.ANY, "", allow=allow)
        for allow in (True, False)
    ]
    await metadata.add_rules(rules)

    await metadata.delete_rules(rules[:1])
    await metadata.delete_rules(rules[:1])

    assert await metadata.rules() == rules[1:]


async def test_producer_ids_are_never_given_twice(
    metadata: SqlMetadata, url: str, tmp_path: Path
) -> None:
    before = ProducerIds(metadata)
    given = await asyncio.gather(*(before.next() for _ in range(PRODUCER_ID_BLOCK + 20)))
    again = await reopened(metadata, url, tmp_path)
    after = ProducerIds(again)
    given += [await after.next() for _ in range(3)]

    assert len(set(given)) == len(given) == PRODUCER_ID_BLOCK + 23
    await again.close()


async def test_the_cluster_keeps_its_name(
    metadata: SqlMetadata, url: str, tmp_path: Path
) -> None:
    name = await metadata.cluster_id()
    again = await reopened(metadata, url, tmp_path)

    assert await again.cluster_id() == name
    assert len(name) == 22
    await again.close()


async def test_migrations_and_create_all_give_the_same_schema(url: str, tmp_path: Path) -> None:
    real_url = f"sqlite:///{tmp_path / 'migrated.sqlite'}" if url == "sqlite" else url
    migrated = create_engine(real_url)

    with migrated.begin() as connection:
        upgrade(connection)
        differences = compare_metadata(
            MigrationContext.configure(connection, opts={"compare_type": True}), TABLES
        )
    migrated.dispose()

    assert differences == []


async def test_migrations_and_create_all_give_sqlite_the_same_statements(
    sqlite_store: SqlMetadata, tmp_path: Path
) -> None:
    migrated_path = tmp_path / "migrated.sqlite"
    migrated = create_engine(f"sqlite:///{migrated_path}")
    with migrated.begin() as connection:
        upgrade(connection)
    migrated.dispose()
    await sqlite_store.close()

    assert statements_of(migrated_path) == statements_of(tmp_path / "metadata.sqlite")


def statements_of(path: Path) -> dict[str, list[str]]:
    """Return a schema's SQL by object: sorted lines, since their order does not matter."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        found = {
            name: sorted(line.strip(" \t,") for line in sql.splitlines()) for name, sql in rows
        }
    connection.close()
    return found


def test_the_newest_migration_is_this_versions_schema(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'none.sqlite'}")
    with engine.connect() as connection:
        scripts = ScriptDirectory.from_config(make_config(connection))
    engine.dispose()

    assert scripts.get_heads() == [SCHEMA_VERSION]


async def test_a_newer_schema_is_refused(
    metadata: SqlMetadata, url: str, tmp_path: Path
) -> None:
    await metadata.close()
    real_url = f"sqlite:///{tmp_path / 'metadata.sqlite'}" if url == "sqlite" else url
    engine = create_engine(real_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    older = SqlMetadata(url, data_dir=tmp_path)

    with pytest.raises(StorageUnavailable, match=r"schema 9999.*newer Headgate"):
        await older.open()
    await older.close()


def test_a_current_schema_is_opened_without_alembic(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from gateway.metadata.sql import SqlMetadata\n"
        "async def main():\n"
        "    for _ in range(2):\n"
        f"        store = SqlMetadata('sqlite', data_dir=pathlib.Path({str(tmp_path)!r}))\n"
        "        await store.open()\n"
        "        await store.close()\n"
        "asyncio.run(main())\n"
        "assert not {'alembic', 'sqlalchemy.orm', 'mako'} & set(sys.modules)\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.usefixtures("synced_sqlite")
async def test_sqlite_syncs_every_commit_and_hides_its_file(
    sqlite_store: SqlMetadata, tmp_path: Path
) -> None:
    def pragmas() -> dict[str, object]:
        assert sqlite_store._database._engine is not None
        with sqlite_store._database._engine.connect() as connection:
            return {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            }

    found = await sqlite_store._database.in_thread(pragmas)

    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    assert (tmp_path / "metadata.sqlite").stat().st_mode & 0o777 == 0o600


async def test_a_failed_change_leaves_nothing_behind(sqlite_store: SqlMetadata) -> None:
    first = topic_row()
    await sqlite_store.create_topic(first, partitions=1)
    half = first._replace(uuid=uuid4(), name=TopicName("default", "other"))
    duplicate_uuid = half._replace(uuid=first.uuid)

    with pytest.raises(TopicExists):
        await sqlite_store.create_topic(duplicate_uuid, partitions=1)

    assert [row.uuid for row in await sqlite_store.topics()] == [first.uuid]
    second = await sqlite_store.create_topic(half, partitions=1)
    assert second.ranges == (PartitionRange(0, 2, 1),)


async def test_a_change_that_fails_halfway_is_undone(metadata: SqlMetadata) -> None:
    bad = topic_row()._replace(configs={"retention.ms": None})  # type: ignore[dict-item]

    with pytest.raises(StorageUnavailable):
        await metadata.create_topic(bad, partitions=1)

    assert await metadata.topics() == []


async def test_a_file_that_is_no_database_is_said_to_be_unavailable(tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").write_bytes(b"not a database, far from it" * 100)
    store = SqlMetadata("sqlite", data_dir=tmp_path)

    with pytest.raises(StorageUnavailable, match="metadata store"):
        await store.open()
    await store.close()


async def test_a_closed_store_says_so(sqlite_store: SqlMetadata) -> None:
    await sqlite_store.close()

    with pytest.raises(StorageUnavailable, match="closed"):
        await sqlite_store.topics()


# --- the store and the log belong together


async def test_a_new_store_is_bound_to_a_new_log(metadata: SqlMetadata) -> None:
    data_uuid = uuid4()

    await reconcile(metadata, data_uuid, log_is_empty=True)
    await reconcile(metadata, data_uuid, log_is_empty=False)

    assert await metadata.data_uuid() == data_uuid


async def test_a_store_of_another_log_is_refused_with_the_way_out(
    metadata: SqlMetadata,
) -> None:
    await reconcile(metadata, uuid4(), log_is_empty=True)

    with pytest.raises(StorageUnavailable, match="headgate recover-metadata"):
        await reconcile(metadata, uuid4(), log_is_empty=True)


async def test_a_new_store_is_refused_for_a_log_with_data(metadata: SqlMetadata) -> None:
    with pytest.raises(StorageUnavailable, match="headgate recover-metadata"):
        await reconcile(metadata, uuid4(), log_is_empty=False)

    assert await metadata.data_uuid() is None


# --- recovery


def identities(uuid: UUID, name: TopicName, ids: dict[int, int]) -> list[PartitionIdentity]:
    return [
        PartitionIdentity(partition_id, uuid, name, number)
        for number, partition_id in ids.items()
    ]


async def test_topics_are_rebuilt_from_the_log(metadata: SqlMetadata) -> None:
    orders, cursors, data_uuid = uuid4(), uuid4(), uuid4()
    found = [
        *identities(orders, ORDERS, {0: 7, 1: 8, 4: 20, 5: 21}),
        *identities(cursors, TopicName("default", "__cursors"), {0: 3}),
    ]

    await restore_topics(metadata, [*found, *found], data_uuid=data_uuid)

    rows = {row.uuid: row for row in await metadata.topics()}
    # Partitions 2 and 3 were never written to: they get ids that nobody has had.
    assert rows[orders].ranges == (
        PartitionRange(0, 7, 2),
        PartitionRange(2, 22, 2),
        PartitionRange(4, 20, 2),
    )
    assert rows[cursors].is_internal
    assert not rows[orders].is_internal
    assert await metadata.reserve_ids("partition_id", 1) == 24
    await reconcile(metadata, data_uuid, log_is_empty=False)


async def test_of_two_topics_with_one_name_the_younger_lives(metadata: SqlMetadata) -> None:
    older, younger = uuid4(), uuid4()
    found = [*identities(younger, ORDERS, {0: 9}), *identities(older, ORDERS, {0: 4, 1: 5})]

    await restore_topics(metadata, found)

    assert [row.uuid for row in await metadata.topics()] == [younger]
    deleted = await metadata.deleted_ranges()
    assert {gone.topic_uuid for gone in deleted} == {older}
    assert {gone.range.first_partition_id for gone in deleted} == {4, 5}


async def test_recovery_keeps_what_the_log_has_not_seen(metadata: SqlMetadata) -> None:
    unwritten = await metadata.create_topic(
        topic_row(TopicName("default", "quiet")), partitions=50
    )
    stale = await metadata.create_topic(topic_row(retention_ms="5"), partitions=1)
    later = await metadata.create_topic(topic_row(TopicName("default", "later")), partitions=8)
    uuid = uuid4()

    await restore_topics(metadata, identities(uuid, ORDERS, {1: 51}))

    rows = {row.uuid: row for row in await metadata.topics()}
    assert set(rows) == {unwritten.uuid, later.uuid, uuid}
    assert stale.uuid not in rows
    assert rows[uuid].ranges == (PartitionRange(0, 60, 1), PartitionRange(1, 51, 1))
    assert await metadata.reserve_ids("partition_id", 1) == 61


async def test_recovery_believes_the_log_about_whose_a_partition_is(
    metadata: SqlMetadata,
) -> None:
    """The store was put back from an old backup, and has given out ids a second time."""
    await metadata.create_topic(topic_row(TopicName("default", "wrong")), partitions=50)
    uuid = uuid4()

    await restore_topics(metadata, identities(uuid, ORDERS, {0: 50}))

    assert [row.uuid for row in await metadata.topics()] == [uuid]
    assert await metadata.deleted_ranges() == []
    assert await metadata.reserve_ids("partition_id", 1) == 51


async def test_recovery_from_an_empty_log_changes_no_topic(metadata: SqlMetadata) -> None:
    kept = await metadata.create_topic(topic_row(), partitions=3)

    await restore_topics(metadata, [])

    assert await metadata.topics() == [kept]
    assert await metadata.reserve_ids("partition_id", 1) == 4
