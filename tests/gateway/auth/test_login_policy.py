"""Required logins, administrators, and the default without a rule: stored, and kept."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import create_engine, text

from gateway.auth.access_keys import AccessKeys
from gateway.auth.login_policy import LoginPolicy
from gateway.auth.ports import Operation, PatternKind, Principal, ResourceType, Rule
from gateway.auth.rules import RuleBook
from gateway.auth.users import StoredUsers
from gateway.config.auth import AuthRule
from gateway.metadata.migrations.upgrade import upgrade
from gateway.metadata.sql import SqlMetadata
from tests.support.live_kernel import CHEAP

ALICE = Principal("alice", "kafka", "10.0.0.1")
NOBODY = Principal("ANONYMOUS", "kafka", "10.0.0.3")


@asynccontextmanager
async def users_of(metadata: SqlMetadata, **config: Any) -> AsyncIterator[StoredUsers]:
    users = StoredUsers(metadata, LoginPolicy(metadata, **config))
    users.iterations = CHEAP
    await users.load()
    yield users
    await users.close()


async def book_of(
    metadata: SqlMetadata,
    users: StoredUsers,
    *static: AuthRule,
    default: Literal["allow", "deny"] | None = None,
) -> RuleBook:
    book = RuleBook(metadata, users, static_rules=static, default=default)
    await book.load()
    return book


def may_write(book: RuleBook, principal: Principal = ALICE, topic: str = "t") -> bool:
    return book.allows(principal, Operation.WRITE, ResourceType.TOPIC, topic)


# --- who must log in


async def test_the_first_user_administers_and_login_stays_required(
    metadata: SqlMetadata,
) -> None:
    async with users_of(metadata) as users:
        before = users.required
        first = await users.add_user("ada", "sesame")
        second = await users.add_user("bob", "sesame")
        await users.remove_user("ada")
        await users.remove_user("bob")

    async with users_of(metadata) as restarted:
        assert not before
        assert first == ("ada", True, True)
        assert second == ("bob", False, False)
        assert restarted.required
        assert not restarted.is_super_user("ada")
        assert restarted.names() == []


async def test_a_user_of_another_kind_neither_administers_nor_requires_login(
    metadata: SqlMetadata,
) -> None:
    async with users_of(metadata) as users:
        await users.put_user("made-by-kafka", "sesame")
        required = users.required
        first = await users.add_user("ada", "sesame")

        assert not required
        assert not users.is_super_user("made-by-kafka")
        assert first.is_administrator
        assert first.login_is_new


async def test_an_administrator_is_one_after_a_restart_and_a_new_password(
    metadata: SqlMetadata,
) -> None:
    async with users_of(metadata) as users:
        await users.add_user("ada", "sesame")
        await users.add_user("bob", "sesame", administers=True)
        await users.add_user("carol", "sesame")
        await users.put_user("bob", "another")
        await users.add_user("ada", "another", administers=False)

    async with users_of(metadata) as restarted:
        names = [name for name in restarted.names() if restarted.is_super_user(name)]
        assert names == ["bob"]


async def test_where_the_config_names_super_users_the_first_user_is_none(
    metadata: SqlMetadata,
) -> None:
    async with users_of(metadata, super_users=("root",)) as users:
        added = await users.add_user("sensor", "sesame")

        assert added == ("sensor", False, True)
        assert users.is_super_user("root")


@pytest.mark.parametrize("is_required", [True, False])
async def test_the_config_sets_and_clears_what_is_stored(
    metadata: SqlMetadata, *, is_required: bool
) -> None:
    async with users_of(metadata, required=not is_required) as users:
        await users.add_user("ada", "sesame")
    async with users_of(metadata, required=is_required) as users:
        now = users.required
        added = await users.add_user("bob", "sesame")
    async with users_of(metadata) as users:
        assert (now, users.required) == (is_required, is_required)
        assert added == ("bob", False, False)


# --- what a change ends


async def test_users_keys_and_rules_share_one_revision(metadata: SqlMetadata) -> None:
    async with users_of(metadata) as users:
        book = await book_of(metadata, users)
        keys = AccessKeys(metadata)
        keys.on_change.append(book.forget_answers)
        users.on_removed.append(keys.forget_user)
        seen = [book.revision]

        await users.add_user("ada", "sesame")
        seen.append(book.revision)
        await keys.add("ada", key_id="key")
        seen.append(book.revision)
        await book.add_rules(
            [Rule("ada", Operation.READ, ResourceType.TOPIC, PatternKind.ANY, "")]
        )
        seen.append(book.revision)
        await users.remove_user("ada")
        seen.append(book.revision)

        assert seen == sorted(set(seen))


async def test_what_an_administrator_might_ends_with_the_user(metadata: SqlMetadata) -> None:
    async with users_of(metadata) as users:
        book = await book_of(metadata, users)
        await users.add_user("alice", "sesame")
        gone: list[tuple[str, bool]] = []
        users.on_removed.append(lambda name: gone.append((name, may_write(book))))
        before = may_write(book)
        await users.remove_user("alice")

        assert before
        assert gone == [("alice", False)]


async def test_who_stays_is_looked_at_again_before_the_answer_where_that_matters(
    metadata: SqlMetadata,
) -> None:
    async with users_of(metadata) as users:
        book = await book_of(metadata, users)
        seen: list[tuple[bool, bool]] = []

        async def settle() -> None:
            seen.append((may_write(book, NOBODY), may_write(book)))

        book.after_change.append(settle)
        await users.put_user("alice", "sesame")
        await users.add_user("root", "sesame")
        await users.add_user("alice", "sesame", administers=True)
        await users.add_user("alice", "sesame", administers=False)
        await users.remove_user("alice")

        assert seen == [(False, False), (False, True), (False, False)]


async def test_those_who_did_not_log_in_go_when_it_becomes_required(
    metadata: SqlMetadata,
) -> None:
    async with users_of(metadata) as users:
        book = await book_of(metadata, users)
        gone: list[str] = []
        users.on_removed.append(gone.append)
        before = may_write(book, NOBODY)

        await users.add_user("ada", "sesame")
        await users.add_user("bob", "sesame")

        assert before
        assert not may_write(book, NOBODY)
        assert gone == ["ANONYMOUS"]


# --- directories of before


def engine_url(url: str, folder: Path) -> str:
    return f"sqlite:///{folder / 'metadata.sqlite'}" if url == "sqlite" else url


def make_older(url: str, *, has_users: bool, rule_kind: str) -> None:
    """Make a store as version 0003 left it."""
    engine = create_engine(url)
    with engine.begin() as connection:
        upgrade(connection, "0003")
        if has_users:
            connection.execute(text("INSERT INTO users (name) VALUES ('alice')"))
        if rule_kind:
            connection.execute(
                text(
                    "INSERT INTO acl_rules (id, principal, host, protocol, operation,"
                    " resource_type, pattern_kind, pattern, allow, client) VALUES (1, 'bob',"
                    " '*', '*', 'write', :kind, 'literal', 'other', :allow, '*')"
                ),
                {"kind": rule_kind, "allow": True},
            )
    engine.dispose()


@pytest.mark.parametrize(
    ("has_users", "rule_kind", "required", "may"),
    [
        (True, "", True, True),
        (True, "topic", True, False),
        (True, "mqtt_topic", True, True),
        (False, "", False, True),
        (False, "topic", False, True),
    ],
)
async def test_an_older_directory_keeps_what_followed_from_its_users_and_rules(
    url: str, tmp_path: Path, *, has_users: bool, rule_kind: str, required: bool, may: bool
) -> None:
    make_older(engine_url(url, tmp_path), has_users=has_users, rule_kind=rule_kind)
    metadata = SqlMetadata(url, data_dir=tmp_path)
    await metadata.open()
    async with users_of(metadata) as users:
        book = await book_of(metadata, users)

        assert users.required is required
        assert may_write(book) is may
        assert not users.is_super_user("alice")
    await metadata.close()


async def test_an_older_directory_with_rules_in_the_config_denies(tmp_path: Path) -> None:
    make_older(engine_url("sqlite", tmp_path), has_users=True, rule_kind="")
    metadata = SqlMetadata("sqlite", data_dir=tmp_path)
    await metadata.open()
    async with users_of(metadata) as users:
        static = AuthRule(principal="bob", operation="write", pattern="literal", name="other")
        closed = await book_of(metadata, users, static)
        open_book = await book_of(metadata, users, static, default="allow")

        assert (may_write(closed), may_write(open_book)) == (False, True)
    await metadata.close()


async def test_an_older_directory_without_rules_is_warned_of_by_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_older(engine_url("sqlite", tmp_path), has_users=True, rule_kind="")
    metadata = SqlMetadata("sqlite", data_dir=tmp_path)
    await metadata.open()
    async with users_of(metadata) as users:
        await book_of(metadata, users)
        warned = capsys.readouterr().out
        await book_of(metadata, users, default="allow")

        assert "auth.default is not set" in warned
        assert "auth.default" not in capsys.readouterr().out
    await metadata.close()


async def test_a_prefix_allows_nothing_in_a_namespace_that_begins_like_it(
    metadata: SqlMetadata,
) -> None:
    prefix = Rule("alice", Operation.ALL, ResourceType.TOPIC, PatternKind.PREFIX, "orders")
    async with users_of(metadata, required=True) as users:
        book = await book_of(metadata, users, default="deny")
        await book.add_rules([prefix])
        assert may_write(book, topic="orders-1")
        assert not may_write(book, topic="orders-eu/secret")
        await book.add_rules([prefix._replace(pattern="orders-eu/")])
        assert may_write(book, topic="orders-eu/secret")
        await book.add_rules([prefix._replace(allow=False)])
        assert not may_write(book, topic="orders-eu/secret")
