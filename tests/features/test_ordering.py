"""Locks of keys."""

import pytest

from features.ordering import KeyLocks


def test_key_is_locked_until_its_last_flight_is_back() -> None:
    locks: KeyLocks[str] = KeyLocks()
    locks.lock(b"a", "first")
    locks.lock(b"a", "second")

    assert not locks.unlock(b"a", "first")
    assert locks.is_locked(b"a")
    assert list(locks.holders(b"a")) == ["second"]
    assert locks.unlock(b"a", "second")
    assert not locks.is_locked(b"a")
    assert list(locks.holders(b"a")) == []


def test_keys_do_not_lock_each_other() -> None:
    locks: KeyLocks[str] = KeyLocks()
    locks.lock(b"a", "first")

    assert not locks.is_locked(b"b")
    assert not locks.is_locked(b"")


def test_key_that_is_free_is_not_kept() -> None:
    locks: KeyLocks[int] = KeyLocks()
    for number in range(100):
        key = b"%d" % number
        locks.lock(key, number)
        locks.unlock(key, number)

    assert len(locks) == 0


def test_what_holds_no_key_cannot_free_it() -> None:
    locks: KeyLocks[str] = KeyLocks()
    locks.lock(b"a", "first")

    with pytest.raises(ValueError, match="not in list"):
        locks.unlock(b"a", "second")
