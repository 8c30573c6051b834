"""Changes of the index: in turn, numbers for all who ask, and a stop when they are another's."""

import asyncio
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from storage_adapters.s3.change import Change
from storage_adapters.s3.committer import Committer
from storage_adapters.s3.index import Fenced, Index

RESERVE = 4


class Node:
    """A committer on a real index, the owner of its data."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/metadata.sqlite"
        self.faults: list[BaseException] = []
        self.index = self._open()
        owned = self.index.take_over(1, reserve=0)
        self.committer = Committer(
            self.index,
            epoch=owned.epoch,
            reserved=owned.reserved,
            reserve=RESERVE,
            on_fault=self.faults.append,
        )

    def _open(self) -> Index:
        index = Index(self.url, clock=ManualClock(unix_ms=1_000_000))
        index.open()
        return index

    def be_taken_over(self) -> None:
        """Let another node take the data."""
        other = self._open()
        other.take_over(2, reserve=0)
        other.close()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_many_who_need_numbers_at_once_share_a_transaction(node: Node) -> None:
    numbers = await asyncio.gather(*[node.committer.take_number() for _ in range(100)])

    assert len(set(numbers)) == 100
    assert node.committer.transactions <= 2
    await node.committer.stop()


async def test_a_number_that_others_took_meanwhile_is_replaced(node: Node) -> None:
    committer = node.committer
    before = asyncio.create_task(committer.commit(Change()))
    waiting = asyncio.create_task(committer.take_number())  # sees none, and waits its turn
    await before

    first = [await committer.take_number() for _ in range(RESERVE)]

    assert await waiting not in first
    await committer.stop()


async def test_nothing_to_change_is_no_transaction(node: Node) -> None:
    await node.committer.commit(Change())

    await node.committer.commit(Change())

    assert node.committer.transactions == 1
    await node.committer.stop()


async def test_who_only_sweeps_learns_that_another_has_taken_over(node: Node) -> None:
    node.be_taken_over()

    with pytest.raises(Fenced):
        await node.committer.run(
            lambda index: index.sweep_pending(1, before_unix_ms=1, keep=frozenset())
        )

    assert list(map(type, node.faults)) == [Fenced]
    assert node.committer.fault is not None
    await node.committer.stop()
