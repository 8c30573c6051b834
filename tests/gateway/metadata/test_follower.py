"""Nodes that follow one store: by notifications, by polls, and after a lost notification."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import create_engine, text

from gateway.metadata import follower as following
from gateway.metadata.follower import MetadataFollower
from gateway.model import TopicName
from gateway.placement import Node, SingleNode
from gateway.sql.engines import engine_url, listen_parameters
from gateway.testing.placement import SettablePlacement
from tests.gateway.metadata.following_node import FollowingNode
from tests.support.waiting import until

ORDERS = TopicName("default", "orders")
LONG_S: Final = 60.0  # a bound that no passing test comes near
FIRST, SECOND = Node(1, "127.0.0.1"), Node(2, "127.0.0.2")


class Opening:
    """Life cycle of shards, of which the follower uses one hook."""

    before_open: Callable[[], Awaitable[None]] | None = None


def make_follower(
    node: FollowingNode, url: str, folder: Path, *, is_first: bool
) -> MetadataFollower:
    mine, other = (FIRST, SECOND) if is_first else (SECOND, FIRST)
    return MetadataFollower(
        node.metadata,
        SettablePlacement(1, node=mine, other=other),
        Opening(),
        listen_parameters=listen_parameters(engine_url(url, folder)),
    )


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes wait for the other node for as long as it takes."""
    monkeypatch.setattr(following, "NODES_WAIT_S_MAX", LONG_S)


@pytest.fixture
async def nodes(url: str, tmp_path: Path) -> AsyncIterator[list[FollowingNode]]:
    async with AsyncExitStack() as stack:
        found = []
        for is_first in (True, False):
            node = await FollowingNode.open(url, tmp_path)
            stack.push_async_callback(node.close)
            follower = make_follower(node, url, tmp_path, is_first=is_first)
            follower.start()
            stack.push_async_callback(follower.stop)
            found.append(node)
        yield found


@pytest.mark.usefixtures("patient")
async def test_a_change_is_answered_when_the_other_node_has_it(
    nodes: list[FollowingNode],
) -> None:
    one, two = nodes

    created = await one.topics.create(ORDERS, partitions=3)
    assert two.topics.get(ORDERS).partition_ids == created.partition_ids
    await two.topics.alter_configs(ORDERS, {"retention.ms": "7"})
    assert created.configs == {"retention.ms": "7"}
    await two.topics.delete(ORDERS)
    assert one.topics.find(ORDERS) is None
    await one.users.put_user("alice", "secret")
    assert two.users.is_known("alice")


@pytest.mark.usefixtures("patient")
async def test_both_nodes_change_at_once(nodes: list[FollowingNode]) -> None:
    names = [TopicName("default", f"topic-{number}") for number in range(6)]

    await asyncio.gather(
        *(nodes[at % 2].topics.create(name) for at, name in enumerate(names)),
        *(node.topics.auto_create(ORDERS) for node in nodes),
    )

    for node in nodes:
        assert [topic.name for topic in node.topics.topics()] == sorted([ORDERS, *names])


async def test_a_change_does_not_wait_for_ever_for_a_node_that_is_silent(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "NODES_WAIT_S_MAX", 0.05)
    node = await FollowingNode.open(url, tmp_path)
    follower = make_follower(node, url, tmp_path, is_first=True)
    follower.start()

    async with asyncio.timeout(LONG_S):
        topic = await node.topics.create(ORDERS)

    assert node.topics.get(ORDERS) is topic
    await follower.stop()
    await node.close()


async def test_a_node_on_its_own_neither_polls_nor_waits(tmp_path: Path) -> None:
    node = await FollowingNode.open("sqlite", tmp_path)
    alone = SingleNode(1, node_id=1, cluster_id="cluster-of-one-node-22")
    shards = Opening()
    follower = MetadataFollower(node.metadata, alone, shards)

    follower.start()

    assert node.metadata.feed.wait_for_nodes is None
    assert (shards.before_open, follower._tasks) == (None, set())
    await follower.stop()
    await node.close()


async def test_a_node_begins_to_follow_when_another_joins(tmp_path: Path) -> None:
    one, two = [await FollowingNode.open("sqlite", tmp_path) for _ in range(2)]
    placement = Growing()
    follower = MetadataFollower(two.metadata, placement, Opening())
    follower.start()
    await one.topics.create(ORDERS)
    assert two.topics.find(ORDERS) is None

    placement.members = (FIRST, SECOND)
    placement.renew([0])

    await until(lambda: two.topics.find(ORDERS) is not None)
    await follower.stop()
    for node in (two, one):
        await node.close()


class Growing(SettablePlacement):
    """Placement whose nodes the test sets."""

    def __init__(self) -> None:
        super().__init__(1)
        self.members: Sequence[Node] = (FIRST,)

    def nodes(self) -> Sequence[Node]:
        return self.members


@pytest.mark.postgres
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_notification_comes_before_the_poll(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LISTENING_POLL_S", 10 * LONG_S)
    writer, reader = [await FollowingNode.open(url, tmp_path) for _ in range(2)]
    follower = make_follower(reader, url, tmp_path, is_first=False)
    follower.start()
    await until(lambda: len(listeners(url)) == 1)

    await writer.topics.create(ORDERS)

    await until(lambda: reader.topics.find(ORDERS) is not None)
    await follower.stop()
    for node in (reader, writer):
        await node.close()


@pytest.mark.postgres
@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_deletion_whose_notification_is_lost_is_seen(
    url: str, nodes: list[FollowingNode]
) -> None:
    one, two = nodes
    await one.topics.create(ORDERS)
    await until(lambda: two.topics.find(ORDERS) is not None and len(listeners(url)) == 2)

    cut(url)
    await one.topics.delete(ORDERS)

    await until(lambda: two.topics.find(ORDERS) is None)
    await until(lambda: len(listeners(url)) == 2)  # and it listens again
    await one.topics.create(ORDERS)
    await until(lambda: two.topics.find(ORDERS) is not None)


def listeners(url: str) -> list[int]:
    """Return the processes of the sessions that listen."""
    return execute(url, "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")


def cut(url: str) -> None:
    """End the sessions that listen."""
    for process in listeners(url):
        execute(url, f"SELECT pg_terminate_backend({process})::int")


def execute(url: str, statement: str) -> list[int]:
    """Return the first column of a statement's rows."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = [row[0] for row in connection.execute(text(statement))]
    engine.dispose()
    return found
