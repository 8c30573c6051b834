"""A message published to topics of two nodes: one decision, and stored once in the own log."""

from pathlib import Path

import pytest

from features.routing.model import Binding, Destination, Message
from gateway.config.exchanges import ExchangeConfig
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.publisher import Publication, Publisher
from tests.gateway.transfer.two_nodes import SHARDS, Cluster, ClusterNode, note, two_nodes
from tests.support.waiting import until

LOWER, UPPER = range(SHARDS // 2), range(SHARDS // 2, SHARDS)
FANOUT = ExchangeName("default", "amq.fanout")


async def open_publisher(cluster: Cluster, node: ClusterNode) -> Publisher:
    exchanges = await Exchanges.open(
        cluster.metadata, node.topics, cluster.clock, ExchangeConfig()
    )
    return Publisher(
        exchanges, node.topics, node.broker, node.coalescer, node.transfers, cluster.clock
    )


def is_clear(node: ClusterNode) -> bool:
    return not any(shard.outgoing.open_targets for shard in node.transfers._shards.values())


@pytest.mark.parametrize("is_killed", [False, True])
async def test_topics_of_two_nodes_get_a_message_once(tmp_path: Path, is_killed: bool) -> None:  # noqa: FBT001
    async with two_nodes(tmp_path) as cluster:
        names = [(await cluster.topic(f"q{number}", 1)).name for number in range(24)]
        await cluster.start()
        first, second = cluster.nodes
        publisher = await open_publisher(cluster, first)
        for name in names:
            destination = Destination(name.name)
            await publisher.exchanges.bind("default", Binding("amq.fanout", destination))
        results: dict[int, object] = {}

        for number in range(3):
            publication = Publication(Message(["k"]), [b"%d" % number])
            found = publisher.publish(FANOUT, publication, note(results, number))
            assert len(found) == len(names)
        await until(lambda: len(results) == 3)
        if is_killed:
            await first.restart()
        await until(lambda: is_clear(first))

        assert set(results.values()) == {None}
        nodes = []
        for name in names:
            topic = first.topics.get(name)
            node = first if cluster.numbers(topic, LOWER) else second
            assert bool(cluster.numbers(topic, UPPER)) is (node is second)
            nodes.append(node)
            assert node.values(node.topics.get(name), 0) == [b"0", b"1", b"2"]
        own = nodes.count(first)
        assert 1 < own < len(names)
        assert [len(one.targets) for one in first.storage.scan(0)].count(own) == 3
