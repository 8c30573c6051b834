"""Access keys: made, found, removed, and gone with their users."""

import re
from pathlib import Path

import pytest

from gateway.auth import access_keys
from gateway.auth.access_keys import AccessKey, AccessKeyExists, AccessKeys
from gateway.auth.users import StoredUsers
from gateway.errors import InvalidRequest, Overloaded
from gateway.metadata.sql import SqlMetadata
from tests.support.live_kernel import CHEAP


@pytest.fixture
async def keys(sqlite_store: SqlMetadata) -> AccessKeys:
    keys = AccessKeys(sqlite_store)
    await keys.load()
    return keys


async def test_a_new_key_is_random_and_found_after_a_restart(
    keys: AccessKeys, sqlite_store: SqlMetadata
) -> None:
    first, second = await keys.add("alice"), await keys.add("alice", account="111122223333")

    again = AccessKeys(sqlite_store)
    await again.load()

    assert re.fullmatch(r"AKIA[A-Z2-7]{16}", first.key_id)
    assert len(first.secret) == 40
    assert first.key_id != second.key_id
    assert first.secret != second.secret
    assert again.find(first.key_id) == first
    assert again.find(second.key_id) == second
    assert again.find("AKIA") is None


async def test_id_and_secret_may_be_given(keys: AccessKeys) -> None:
    key = await keys.add("alice", key_id="test", secret="x")

    assert key == AccessKey("test", "x", "alice", "")
    assert keys.keys() == [key]


async def test_keys_are_listed_by_user(keys: AccessKeys) -> None:
    for user, key_id in (("bob", "B"), ("alice", "Z"), ("alice", "A")):
        await keys.add(user, key_id=key_id)

    found = keys.keys()

    assert [(key.user, key.key_id) for key in found] == [
        ("alice", "A"),
        ("alice", "Z"),
        ("bob", "B"),
    ]


async def test_an_id_is_given_once(keys: AccessKeys) -> None:
    key = await keys.add("alice", key_id="test")

    with pytest.raises(AccessKeyExists, match="test"):
        await keys.add("mallory", key_id="test")

    assert keys.find("test") == key


async def test_a_removed_key_is_found_no_more(
    keys: AccessKeys, sqlite_store: SqlMetadata
) -> None:
    key = await keys.add("alice")
    before = keys.revision

    assert await keys.remove(key.key_id)
    assert not await keys.remove(key.key_id)

    assert keys.find(key.key_id) is None
    assert keys.revision > before
    assert await sqlite_store.access_keys() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": ""},
        {"user": "*"},
        {"user": "ANONYMOUS"},
        {"user": "a" * 256},
        {"user": "a\0b"},
        {"key_id": "a/b"},
        {"key_id": "a" * 129},
        {"key_id": "a b"},
        {"secret": "a b"},
        {"secret": "\u00e9"},
        {"secret": "a" * 257},
        {"account": "12345678901"},
        {"account": "1234567890123"},
        {"account": "\u0661" * 12},
    ],
)
async def test_what_cannot_be_signed_with_is_refused(
    keys: AccessKeys, wrong: dict[str, str]
) -> None:
    user = wrong.pop("user", "alice")

    with pytest.raises(InvalidRequest):
        await keys.add(user, **wrong)

    assert keys.keys() == []


async def test_there_is_a_bound(keys: AccessKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_keys, "KEYS_MAX", 2)
    await keys.add("alice")
    await keys.add("alice")

    with pytest.raises(Overloaded):
        await keys.add("alice")


async def test_keys_go_with_their_user(keys: AccessKeys, sqlite_store: SqlMetadata) -> None:
    users = StoredUsers(sqlite_store)
    users.iterations = CHEAP
    await users.load()
    users.on_removed.append(keys.forget_user)
    await users.put_user("alice", "password")
    await keys.add("alice", key_id="hers")
    bobs = await keys.add("bob", key_id="his")

    await users.remove_user("alice")
    await users.remove_user("bob")  # who has no password: there is no such user

    assert keys.keys() == [bobs]
    assert await sqlite_store.access_keys() == [bobs]
    await users.close()


async def test_a_secret_does_not_show_in_a_log(keys: AccessKeys) -> None:
    key = await keys.add("alice", secret="verysecret")

    assert "verysecret" not in repr(key)


async def test_only_the_owner_may_read_the_file(keys: AccessKeys, tmp_path: Path) -> None:
    await keys.add("alice")

    assert (tmp_path / "metadata.sqlite").stat().st_mode & 0o777 == 0o600


async def test_keys_of_the_file_come_and_go_beside_those_that_are_stored(
    keys: AccessKeys,
) -> None:
    """A user who is removed while the file is read anew does not come back with it."""
    await keys.add("alice", key_id="stored", secret="x")
    await keys.add("bob", key_id="both", secret="x")
    keys.declare([AccessKey("both", "y", "carol", ""), AccessKey("file", "y", "carol", "")])
    assert [(key.key_id, key.secret) for key in keys.keys()] == [  # noqa: SIM118
        ("stored", "x"),
        ("both", "y"),
        ("file", "y"),
    ]
    keys.forget_user("alice")
    keys.declare([])
    assert keys.find("stored") is None
    assert keys.find("file") is None
    assert keys.find("both") == AccessKey("both", "x", "bob", "")
