import pytest

from features.ordering import KeyLocks


def test_key_is_locked_until_its_last_message_is_back() -> None:
    locks = KeyLocks()
    locks.lock(b"a", 2)
    locks.lock(b"a", 1)

    assert not locks.unlock(b"a", 2)
    assert locks.is_locked(b"a")
    assert locks.unlock(b"a", 1)
    assert not locks.is_locked(b"a")


def test_keys_do_not_lock_each_other() -> None:
    locks = KeyLocks()
    locks.lock(b"a", 1)

    assert not locks.is_locked(b"b")
    assert not locks.is_locked(b"")


def test_key_that_is_free_is_not_kept() -> None:
    locks = KeyLocks()
    for number in range(100):
        key = b"%d" % number
        locks.lock(key, 1)
        locks.unlock(key, 1)

    assert len(locks) == 0


def test_more_cannot_come_back_than_went_out() -> None:
    locks = KeyLocks()
    locks.lock(b"a", 1)

    with pytest.raises(AssertionError):
        locks.unlock(b"a", 2)
