"""The order in which state is quiesced, closed and opened when shards move."""

import asyncio
from collections.abc import Callable, Collection

import pytest

from gateway.errors import NotLeader, StorageUnavailable
from gateway.shard_lifecycle import ShardLifecycle
from gateway.storage import OnDone
from gateway.testing.placement import SettablePlacement
from tests.support.waiting import turns

SHARDS = 4


class Appends:
    """Appends that are under way until the test says otherwise."""

    def __init__(self) -> None:
        self.waiting: list[OnDone] = []
        self.holds = False

    def after_pending(self, on_done: OnDone) -> None:
        if self.holds:
            self.waiting.append(on_done)
        else:
            asyncio.get_running_loop().call_soon(on_done, None)

    def complete(self) -> None:
        for on_done in self.waiting:
            on_done(None)
        self.waiting.clear()


class State:
    """State that notes what is asked of it."""

    def __init__(self, name: str, calls: list[tuple[str, str, list[int]]]) -> None:
        self.name = name
        self.calls = calls
        self.open_shards: set[int] = set(range(SHARDS))
        self.while_loading: Callable[[], None] = lambda: None
        self.error: Exception | None = None

    def quiesce_shards(self, shards: Collection[int]) -> None:
        self.calls.append(("quiesce", self.name, sorted(shards)))

    def close_shards(self, shards: Collection[int]) -> None:
        self.calls.append(("close", self.name, sorted(shards)))
        self.open_shards.difference_update(shards)

    async def load_shards(self, shards: Collection[int]) -> None:
        self.calls.append(("load", self.name, sorted(shards)))
        await asyncio.sleep(0)
        self.while_loading()
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.open_shards.update(shards)


class Node:
    """A placement, appends, and two states of which the second builds on the first."""

    def __init__(self) -> None:
        self.placement = SettablePlacement(SHARDS)
        self.appends = Appends()
        self.shards = ShardLifecycle(self.placement, self.appends.after_pending)
        self.calls: list[tuple[str, str, list[int]]] = []
        self.base, self.user = State("base", self.calls), State("user", self.calls)
        self.shards.register(self.base)
        self.shards.register(self.user)


async def test_users_close_before_what_they_build_on_and_open_after_it() -> None:
    node = Node()
    node.placement.give([1, 2])
    await node.shards.settled()
    node.placement.take([2])
    await node.shards.settled()
    assert node.calls == [
        ("quiesce", "user", [1, 2]),
        ("quiesce", "base", [1, 2]),
        ("close", "user", [1, 2]),
        ("close", "base", [1, 2]),
        ("load", "base", [2]),
        ("load", "user", [2]),
    ]
    assert [node.shards.is_open(shard) for shard in range(SHARDS)] == [True, False, True, True]


async def test_nothing_is_closed_before_appends_under_way_are_done() -> None:
    node = Node()
    node.appends.holds = True
    node.placement.give([0])
    await turns()
    assert [call[0] for call in node.calls] == ["quiesce", "quiesce"]
    assert not node.shards.is_open(0)
    node.appends.complete()
    await node.shards.settled()
    assert [call[0] for call in node.calls[2:]] == ["close", "close"]


async def test_a_shard_that_comes_back_at_once_is_closed_and_opened() -> None:
    node = Node()
    node.placement.give([3])
    node.placement.take([3])
    assert not node.shards.is_open(3)
    await node.shards.settled()
    assert [call[0] for call in node.calls] == ["quiesce"] * 2 + ["close"] * 2 + ["load"] * 2
    assert node.shards.is_open(3)


async def test_a_shard_that_leaves_while_it_is_opened_is_closed_again() -> None:
    node = Node()
    node.placement.give([0, 1])
    await node.shards.settled()
    node.calls.clear()

    def leave() -> None:
        node.base.while_loading = lambda: None
        node.base.error = NotLeader("gone")
        node.placement.give([0])

    node.base.while_loading = leave
    node.placement.take([0, 1])
    await node.shards.settled()
    assert [node.shards.is_open(shard) for shard in range(SHARDS)] == [False, True, True, True]
    assert node.base.open_shards == node.user.open_shards == {1, 2, 3}
    assert ("load", "user", [1]) in node.calls
    assert ("load", "user", [0, 1]) not in node.calls


async def test_a_shard_that_cannot_be_read_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.shard_lifecycle.RETRY_S", 0.001)
    node = Node()
    node.placement.give([0])
    await node.shards.settled()
    node.user.error = StorageUnavailable("a disk")
    node.placement.take([0])
    await node.shards.settled()
    assert not node.shards.is_open(0)
    for _ in range(10_000):
        if node.shards.is_open(0):
            break
        await asyncio.sleep(0.001)
    assert node.shards.is_open(0)
    assert node.calls[-2:] == [("close", "user", [0]), ("load", "user", [0])]


@pytest.mark.parametrize("between", range(20))
async def test_a_shard_is_opened_in_whatever_turn_it_comes(between: int) -> None:
    node = Node()
    node.placement.give([0])
    await turns(between)
    node.placement.take([0])
    await node.shards.settled()
    assert node.shards.is_open(0)
    assert not node.shards.loading


async def test_a_node_of_all_shards_starts_no_task() -> None:
    node = Node()
    node.placement.renew(range(SHARDS))
    assert node.shards._task is None
    assert node.calls == []


async def test_nothing_is_followed_after_a_close() -> None:
    node = Node()
    node.shards.close()
    node.placement.give([0])
    await node.shards.settled()
    assert node.calls == []
