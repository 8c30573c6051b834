"""Bounds of share sessions: of the node, and of each connection."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from adapters.kafka.errors import ErrorCode, Refused
from adapters.kafka.node.share_sessions import (
    PartitionKey,
    SessionKey,
    ShareBounds,
    ShareSession,
    ShareSessionCache,
)
from gateway.groups.model import GroupName

ONE, TWO, THREE = object(), object(), object()  # connections


class Rig:
    """Cache, and the sessions that have ended."""

    def __init__(self) -> None:
        self.ended: list[ShareSession] = []
        self.cache = ShareSessionCache(ShareBounds(4, 10, 2, 6), self.ended.append)

    def open(self, member_id: str, connection: object = ONE) -> ShareSession:
        key = SessionKey(GroupName("default", "g"), member_id)
        return self.cache.open(key, connection, 1)

    def add(self, session: ShareSession, numbers: Iterable[int]) -> None:
        self.cache.add(session, keys(numbers))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def keys(numbers: Iterable[int]) -> list[PartitionKey]:
    return [(UUID(int=1), number) for number in numbers]


def limit_reached() -> "pytest.RaisesExc[Refused]":
    code = ErrorCode.SHARE_SESSION_LIMIT_REACHED
    return pytest.raises(Refused, check=lambda error: error.code is code)


def test_one_connection_leaves_sessions_to_others(rig: Rig) -> None:
    rig.open("a")
    rig.open("b")

    with limit_reached():
        rig.open("c")
    rig.open("b")  # in place of its own
    rig.open("c", TWO)
    rig.open("d", TWO)
    with limit_reached():
        rig.open("e", THREE)
    rig.cache.end_connection(ONE)
    rig.open("e", THREE)
    assert len(rig.cache) == 3


def test_one_connection_leaves_partitions_to_others(rig: Rig) -> None:
    first, second = rig.open("a"), rig.open("b")
    rig.add(first, range(4))
    rig.add(second, range(2))
    rig.add(second, range(2))  # known ones

    with limit_reached():
        rig.add(second, [2])
    assert rig.ended == [second]
    rig.add(rig.open("c", TWO), range(6))
    assert rig.cache.partition_count == 10


def test_partitions_of_all_connections_are_bounded(rig: Rig) -> None:
    rig.add(rig.open("a"), range(6))
    rig.add(rig.open("b", TWO), range(4))
    third = rig.open("c", THREE)

    with limit_reached():
        rig.add(third, [0])
    rig.cache.end_connection(TWO)
    rig.add(rig.open("c", THREE), range(4))
    assert rig.cache.partition_count == 10


def test_what_has_ended_or_is_forgotten_makes_room(rig: Rig) -> None:
    session = rig.open("a")
    rig.add(session, range(6))
    for key in keys([0, 0, 7]):
        rig.cache.forget(session, key)
    rig.add(session, [6])

    rig.cache.end(session)
    rig.cache.end(session)
    rig.add(rig.open("b"), range(6))
    rig.cache.end_connection(ONE)
    rig.cache.end_connection(ONE)

    assert (len(rig.cache), rig.cache.partition_count) == (0, 0)
    assert len(rig.ended) == 2
