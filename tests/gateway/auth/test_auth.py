"""Users, passwords and rules over a real SQLite file."""

import asyncio
import threading
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.mqtt.rule_types import EQ, FILTER
from gateway.auth.login_policy import LoginPolicy
from gateway.auth.ports import (
    CLUSTER,
    KERNEL_TYPES,
    Operation,
    PatternKind,
    Principal,
    ResourceType,
    Rule,
    Verdict,
    check_rule,
)
from gateway.auth.rules import RuleBook, decide, parse_rule
from gateway.auth.scram import ScramMechanism, ScramServer, make_credential
from gateway.auth.users import CHECK_THREADS, CHECKS_MAX, StoredUsers
from gateway.config.auth import AuthRule
from gateway.errors import InvalidRequest, Overloaded, Unauthenticated
from gateway.metadata.sql import SqlMetadata
from tests.gateway.auth.test_scram import CLIENT_FIRST, SERVER_NONCE, client_final
from tests.support.live_kernel import CHEAP

ALICE = Principal("alice", "kafka", "10.0.0.1")
BOB = Principal("bob", "mqtt", "10.0.0.2")
NOBODY = Principal("ANONYMOUS", "kafka", "10.0.0.3")


@pytest.fixture
async def metadata(tmp_path: Path) -> AsyncIterator[SqlMetadata]:
    store = SqlMetadata("sqlite", data_dir=tmp_path)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def users(metadata: SqlMetadata) -> AsyncIterator[StoredUsers]:
    stored = StoredUsers(metadata)
    stored.iterations = CHEAP
    await stored.load()
    yield stored
    await stored.close()


async def rule_book(
    metadata: SqlMetadata,
    users: StoredUsers,
    *static: AuthRule,
    super_users: tuple[str, ...] = (),
) -> RuleBook:
    book = RuleBook(metadata, users, static_rules=static, super_users=super_users)
    await book.load()
    return book


def rule(
    principal: str, operation: Operation, pattern: str = "", *, allow: bool = True
) -> Rule:
    kind = PatternKind.LITERAL if pattern else PatternKind.ANY
    return Rule(principal, operation, ResourceType.TOPIC, kind, pattern, allow=allow)


def may(book: RuleBook, principal: Principal, operation: Operation, topic: str = "t") -> bool:
    return book.allows(principal, operation, ResourceType.TOPIC, topic)


# --- users


async def test_a_password_lets_its_user_in(users: StoredUsers) -> None:
    await users.put_user("alice", "sesame")
    await users.put_user("bob", "other")

    assert await users.authenticate_plain("alice", "sesame") == "alice"
    for name, password in (("alice", "other"), ("alice", ""), ("carol", "sesame"), ("", "")):
        with pytest.raises(Unauthenticated, match="wrong user name or password"):
            await users.authenticate_plain(name, password)


async def test_a_user_can_be_removed_once(users: StoredUsers) -> None:
    await users.put_user("alice", "sesame")

    assert await users.remove_user("alice")
    assert not await users.remove_user("alice")


async def test_users_are_there_after_a_restart(
    metadata: SqlMetadata, users: StoredUsers
) -> None:
    await users.put_user("alice", "sesame")
    await users.put_user("bob", "other")
    await users.remove_user("bob")

    restarted = StoredUsers(metadata)
    restarted.iterations = CHEAP
    await restarted.load()

    assert restarted.names() == ["alice"]
    assert await restarted.authenticate_plain("alice", "sesame") == "alice"
    assert {one.mechanism for one in restarted.credentials("alice")} == set(ScramMechanism)
    await restarted.close()


async def test_a_new_password_ends_the_old_one_even_when_remembered(
    users: StoredUsers,
) -> None:
    await users.put_user("alice", "first")
    await users.authenticate_plain("alice", "first")

    await users.put_user("alice", "second")

    with pytest.raises(Unauthenticated):
        await users.authenticate_plain("alice", "first")
    assert await users.authenticate_plain("alice", "second") == "alice"
    await users.remove_user("alice")
    with pytest.raises(Unauthenticated):
        await users.authenticate_plain("alice", "second")


async def test_a_storm_of_reconnects_costs_one_check(users: StoredUsers) -> None:
    await users.put_user("alice", "sesame")
    await users.authenticate_plain("alice", "sesame")
    users._threads.shutdown()  # nothing can be derived any more

    names = [await users.authenticate_plain("alice", "sesame") for _ in range(500)]

    assert names == ["alice"] * 500


async def test_a_user_who_is_removed_while_being_checked_does_not_get_in(
    users: StoredUsers,
) -> None:
    await users.put_user("alice", "sesame")
    gate = threading.Event()
    for _ in range(CHECK_THREADS):
        users._threads.submit(gate.wait)
    check = asyncio.create_task(users.authenticate_plain("alice", "sesame"))

    await users.remove_user("alice")
    gate.set()

    with pytest.raises(Unauthenticated):
        await check


async def test_checks_at_once_are_bounded(users: StoredUsers) -> None:
    await users.put_user("alice", "sesame")

    outcomes = await asyncio.gather(
        *(users.authenticate_plain("alice", f"guess{n}") for n in range(CHECKS_MAX + 5)),
        return_exceptions=True,
    )

    assert sum(isinstance(outcome, Overloaded) for outcome in outcomes) == 5
    assert sum(isinstance(outcome, Unauthenticated) for outcome in outcomes) == CHECKS_MAX


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
async def test_scram_lets_a_stored_user_in(
    users: StoredUsers, mechanism: ScramMechanism
) -> None:
    await users.put_user("user", "pencil")
    server = ScramServer(mechanism, nonce=SERVER_NONCE)

    name = server.receive_first(CLIENT_FIRST)
    first = server.first_message(await users.scram_credential(name, mechanism))
    final = server.final_message(client_final("pencil", first, mechanism=mechanism))

    assert final.startswith(b"v=")


async def test_unknown_users_cannot_be_told_by_their_salt(
    metadata: SqlMetadata, users: StoredUsers
) -> None:
    mechanism = ScramMechanism.SHA_256
    await users.put_user("alice", "sesame")
    real = await users.scram_credential("alice", mechanism)
    restarted = StoredUsers(metadata)
    restarted.iterations = CHEAP
    await restarted.load()

    decoy = await users.scram_credential("carol", mechanism)

    assert await restarted.scram_credential("carol", mechanism) == decoy
    assert (len(decoy.salt), decoy.iterations) == (len(real.salt), real.iterations)
    assert (await users.scram_credential("dave", mechanism)).salt != decoy.salt
    await restarted.close()


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("", "sesame"),
        ("*", "sesame"),
        ("ANONYMOUS", "sesame"),
        ("a\x00b", "sesame"),
        ("a" * 256, "sesame"),
        ("alice", ""),
        ("alice", "a\x07b"),
        ("alice", "p" * 1025),
    ],
)
async def test_a_name_or_password_that_cannot_be_is_refused(
    users: StoredUsers, name: str, password: str
) -> None:
    with pytest.raises(InvalidRequest):
        await users.put_user(name, password)

    assert users.names() == []


# --- rules


async def test_rules_of_the_store_are_there_after_a_restart_and_can_go(
    metadata: SqlMetadata, users: StoredUsers
) -> None:
    book = await rule_book(metadata, users)
    rules = [rule("alice", Operation.READ, "t"), rule("*", Operation.ALL, allow=False)]
    await book.add_rules([*rules, rules[0]])

    restarted = await rule_book(metadata, users)

    assert restarted.stored_rules() == book.stored_rules() == rules
    assert not may(restarted, ALICE, Operation.READ)
    await restarted.delete_rules(rules[1:])
    assert may(restarted, ALICE, Operation.READ)
    await restarted.delete_rules(rules)
    assert restarted.stored_rules() == []


async def test_static_rules_stand_beside_stored_ones(
    metadata: SqlMetadata, users: StoredUsers
) -> None:
    static = AuthRule(principal="bob", operation="write", pattern="prefix", name="t")
    book = await rule_book(metadata, users, static)
    await book.add_rules([rule("alice", Operation.READ, "t")])

    assert may(book, BOB, Operation.WRITE, "tx")
    assert may(book, ALICE, Operation.READ)
    assert not may(book, BOB, Operation.READ)
    await book.delete_rules(book.static_rules())
    assert may(book, BOB, Operation.WRITE, "tx")


async def test_rules_of_exchanges_are_apart_from_those_of_topics(
    metadata: SqlMetadata, users: StoredUsers
) -> None:
    allowed = AuthRule(
        principal="alice",
        operation="write",
        resource="exchange",
        pattern="prefix",
        name="events",
        effect="allow",
    )
    book = await rule_book(metadata, users, allowed)

    def may_write(kind: ResourceType, name: str) -> bool:
        return book.allows(ALICE, Operation.WRITE, kind, name)

    assert may_write(ResourceType.EXCHANGE, "events.orders")
    assert not may_write(ResourceType.EXCHANGE, "events-old/x")
    assert not book.allows(ALICE, Operation.ALTER, ResourceType.EXCHANGE, "events.orders")
    assert not book.allows(BOB, Operation.WRITE, ResourceType.EXCHANGE, "events.orders")


def test_a_static_rule_means_what_it_says() -> None:
    config = AuthRule(
        principal="bob",
        protocol="mqtt",
        operation="describe_configs",
        resource="cluster",
        effect="deny",
    )

    assert parse_rule(config) == Rule(
        "bob",
        Operation.DESCRIBE_CONFIGS,
        ResourceType.CLUSTER,
        PatternKind.ANY,
        "",
        allow=False,
        protocol="mqtt",
    )


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"operation": "wite"}, "write"),
        ({"pattern": "literal"}, "name goes with"),
        ({"pattern": "prefix"}, "name goes with"),
        ({"pattern": "any", "name": "t"}, "name goes with"),
    ],
)
def test_a_static_rule_that_makes_no_sense_is_refused(
    config: dict[str, str], hint: str
) -> None:
    with pytest.raises((ValidationError, InvalidRequest), match=hint):
        parse_rule(AuthRule.model_validate(config))


def test_a_rule_with_an_empty_principal_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        check_rule(rule("", Operation.READ))


@pytest.mark.parametrize(
    "doing", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER]
)
def test_who_may_do_may_describe(doing: Operation) -> None:
    rules = {ResourceType.TOPIC: [rule("alice", doing)]}

    describing, configuring = (
        decide(rules, ALICE, operation, ResourceType.TOPIC, "t")
        for operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
    )
    assert (describing, configuring) == (Verdict.ALLOWED, Verdict.CLOSED)


def test_denying_to_read_does_not_deny_to_describe() -> None:
    rules = {
        ResourceType.TOPIC: [
            rule("alice", Operation.DESCRIBE),
            rule("alice", Operation.READ, allow=False),
        ]
    }

    describing, reading = (
        decide(rules, ALICE, operation, ResourceType.TOPIC, "t")
        for operation in (Operation.DESCRIBE, Operation.READ)
    )
    assert (describing, reading) == (Verdict.ALLOWED, Verdict.DENIED)


async def test_who_may_write_somewhere_may_do_so_idempotently(  # KIP-679
    metadata: SqlMetadata,
) -> None:
    users = StoredUsers(metadata, LoginPolicy(metadata, required=True))
    book = await rule_book(metadata, users)
    denied = Rule(
        "alice",
        Operation.IDEMPOTENT_WRITE,
        ResourceType.CLUSTER,
        PatternKind.ANY,
        "",
        allow=False,
    )
    question = (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER)
    await book.add_rules([rule("alice", Operation.WRITE, "t")])

    before = [book.allows(one, *question) for one in (ALICE, BOB)]
    await book.add_rules([denied])

    assert before == [True, False]
    assert not book.allows(ALICE, *question)
    await users.close()


PATTERN_KINDS = [PatternKind.LITERAL, PatternKind.PREFIX, PatternKind.ANY, FILTER, EQ]
names = st.sampled_from(["", "a", "ab", "abc", "b"])
rules_of_any_kind = st.builds(
    Rule,
    principal=st.sampled_from(["*", "alice", "bob"]),
    operation=st.sampled_from([Operation.READ, Operation.CREATE, Operation.ALL]),
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    pattern_kind=st.sampled_from(PATTERN_KINDS),
    pattern=names,
    allow=st.booleans(),
    protocol=st.sampled_from(["*", "kafka", "mqtt"]),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
)


def selects_by_definition(one: Rule, kind: ResourceType, name: str) -> bool:
    """A rule selects what its pattern means, whomever it is about."""
    pattern = {
        PatternKind.ANY: True,
        PatternKind.LITERAL: name == one.pattern,
        PatternKind.PREFIX: name[: len(one.pattern)] == one.pattern,
        FILTER: False,
        EQ: False,
    }[one.pattern_kind]
    return pattern and one.resource_type is kind


def fits_by_definition(
    one: Rule, principal: Principal, operation: Operation, kind: ResourceType, name: str
) -> bool:
    """A rule applies when every part of it is a wildcard or the thing itself."""
    return (
        selects_by_definition(one, kind, name)
        and one.principal in ("*", principal.name)
        and one.protocol in ("*", principal.protocol)
        and one.host in ("*", principal.host)
        and one.operation in (Operation.ALL, operation)
    )


@given(rules=st.lists(rules_of_any_kind, max_size=6))
def test_deny_wins_then_allow_then_no_where_a_rule_selects(rules: list[Rule]) -> None:
    by_type = {
        kind: [one for one in rules if one.resource_type is kind] for kind in KERNEL_TYPES
    }
    questions = product(
        (ALICE, BOB),
        (Operation.READ, Operation.CREATE),
        (ResourceType.TOPIC, ResourceType.GROUP),
        ("a", "ab", "c"),
    )

    for question in questions:
        fitting = [one for one in rules if fits_by_definition(one, *question)]
        selecting = [one for one in rules if selects_by_definition(one, *question[2:])]
        expected = Verdict.CLOSED if selecting else Verdict.SILENT
        if fitting:
            is_allowed = all(one.allow for one in fitting)
            expected = Verdict.ALLOWED if is_allowed else Verdict.DENIED
        assert decide(by_type, *question) is expected


async def test_a_decoy_costs_what_most_passwords_cost(users: StoredUsers) -> None:
    mechanism = ScramMechanism.SHA_256
    for name, iterations in (("ada", 5_000), ("bob", 5_000), ("carol", 6_000)):
        credential = make_credential(mechanism, "geheim", salt=b"salt", iterations=iterations)
        await users.put_credentials(name, [credential])
    decoy = await users.scram_credential("nobody", mechanism)
    assert decoy.iterations == 5_000
