"""Rules for MQTT topics in the gateway's rule model, and the migration that made room for them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from adapters.mqtt.rule_types import EQ, FILTER, MQTT_TOPIC
from gateway.auth.ports import Operation, PatternKind, Principal, ResourceType, Rule, check_rule
from gateway.auth.rules import RuleBook
from gateway.auth.users import StoredUsers
from gateway.errors import InvalidRequest
from gateway.metadata.migrations.upgrade import upgrade
from gateway.metadata.schema import SCHEMA_VERSION
from gateway.metadata.sql import SqlMetadata
from tests.support.live_kernel import CHEAP

ALICE = Principal("alice", "kafka", "10.0.0.1")
TOPIC_RULE = Rule("ada", Operation.READ, ResourceType.TOPIC, PatternKind.LITERAL, "t")


@pytest.fixture
async def users(metadata: SqlMetadata) -> AsyncIterator[StoredUsers]:
    stored = StoredUsers(metadata)
    stored.iterations = CHEAP
    await stored.load()
    yield stored
    await stored.close()


async def rule_book(metadata: SqlMetadata, users: StoredUsers) -> RuleBook:
    book = RuleBook(metadata, users)
    await book.load()
    return book


def may_write(book: RuleBook) -> bool:
    return book.allows(ALICE, Operation.WRITE, ResourceType.TOPIC, "t")


MQTT_RULE = Rule("ada", Operation.WRITE, MQTT_TOPIC, FILTER, "a/%c/#", client="dev1")


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ({"resource_type": ResourceType.TOPIC}, "a filter is for MQTT topics"),
        (
            {"resource_type": ResourceType.TOPIC, "pattern_kind": EQ},
            "a filter is for MQTT topics",
        ),
        ({"pattern_kind": PatternKind.LITERAL}, "take no other pattern"),
        ({"pattern_kind": PatternKind.ANY, "pattern": ""}, "take no other pattern"),
        ({"operation": Operation.DESCRIBE}, "subscribe"),
        ({"protocol": "mqtt"}, "names none"),
        ({"pattern": ""}, "needs a name"),
        ({"pattern": "a/#/b"}, "whole level"),
        ({"pattern": "a/b#"}, "whole level"),
        ({"pattern": "a+/b"}, "whole level"),
        ({"pattern": "a/+b"}, "whole level"),
        ({"client": ""}, "1 to 255"),
        ({"client": "c" * 256}, "1 to 255"),
        (dict.fromkeys(("principal", "host", "pattern"), "\U0001f600" * 200), "2048 bytes"),
    ],
)
def test_a_rule_for_mqtt_topics_that_makes_no_sense_is_refused(
    change: dict[str, object], hint: str
) -> None:
    assert check_rule(MQTT_RULE) is MQTT_RULE
    exact = MQTT_RULE._replace(pattern_kind=EQ)
    assert check_rule(exact) is exact
    with pytest.raises(InvalidRequest, match=hint):
        check_rule(MQTT_RULE._replace(**change))  # type: ignore[arg-type]  # of several types


def test_only_rules_for_mqtt_topics_are_for_one_client() -> None:
    with pytest.raises(InvalidRequest, match="client identifier"):
        check_rule(TOPIC_RULE._replace(client="dev1"))


async def test_rules_for_mqtt_topics_close_nothing_else(
    metadata: SqlMetadata, users: StoredUsers
) -> None:
    book = await rule_book(metadata, users)

    await book.add_rules([MQTT_RULE])

    assert may_write(book)
    assert list(book.filter_rules) == book.stored_rules() == [MQTT_RULE]
    restarted = await rule_book(metadata, users)
    assert list(restarted.filter_rules) == [MQTT_RULE]
    await restarted.delete_rules([MQTT_RULE])
    assert list(restarted.filter_rules) == []


async def test_who_changes_rules_is_answered_when_all_have_taken_them_up(
    metadata: SqlMetadata, users: StoredUsers
) -> None:
    book = await rule_book(metadata, users)
    seen: list[tuple[int, int]] = []

    async def settle() -> None:
        await asyncio.sleep(0)
        seen.append((book.revision, len(book.filter_rules)))

    book.after_change.append(settle)
    await book.add_rules([MQTT_RULE])
    after_adding = list(seen)
    await book.delete_rules([MQTT_RULE])

    assert after_adding == [(book.revision - 1, 1)]
    assert seen == [*after_adding, (book.revision, 0)]


async def test_a_rule_of_the_schema_before_is_for_every_client(
    url: str, tmp_path: Path
) -> None:
    real_url = f"sqlite:///{tmp_path / 'metadata.sqlite'}" if url == "sqlite" else url
    engine = create_engine(real_url)
    with engine.begin() as connection:
        upgrade(connection, "0002")
        for number, (pattern, is_allowed) in enumerate(
            (("b", True), ("a", False), ("c", True))
        ):
            connection.execute(
                text(
                    "INSERT INTO acl_rules (id, principal, host, protocol, operation,"
                    " resource_type, pattern_kind, pattern, allow) VALUES (:id, 'ada', '*',"
                    " 'kafka', 'read', 'topic', 'literal', :pattern, :allow)"
                ),
                {"id": 7 + number, "pattern": pattern, "allow": is_allowed},
            )
    engine.dispose()

    store = SqlMetadata(url, data_dir=tmp_path)
    await store.open()
    older = await store.rules()
    await store.add_rules([MQTT_RULE, *older])
    found = await store.rules()
    await store.close()

    assert [(one.pattern, one.allow, one.client) for one in older] == [
        ("b", True, "*"), ("a", False, "*"), ("c", True, "*"),
    ]  # fmt: skip
    assert older[0] == TOPIC_RULE._replace(pattern="b", protocol="kafka")
    assert found == [*older, MQTT_RULE]
    engine = create_engine(real_url)
    with engine.connect() as connection:
        version = connection.scalar(text("SELECT version_num FROM alembic_version"))
    engine.dispose()
    assert version == SCHEMA_VERSION


async def test_the_longest_rule_is_kept(metadata: SqlMetadata) -> None:
    # Letters that no index compresses: of PostgreSQL's, a row has 2,704 bytes at most.
    letters = "".join(chr(0x4E00 + 97 * number % 20_000) for number in range(680))
    rule = MQTT_RULE._replace(
        principal=letters[:225], client=letters[225:450], pattern=letters[450:675]
    )
    await metadata.add_rules([check_rule(rule)])

    assert await metadata.rules() == [rule]
    with pytest.raises(InvalidRequest):
        check_rule(rule._replace(host=letters[:20]))
