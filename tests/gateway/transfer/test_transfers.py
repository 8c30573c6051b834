"""Transfers between two nodes with a log each: once and in order, also with losses and kills."""

import random
from functools import partial
from pathlib import Path

import pytest

from gateway.errors import MessageTooLarge, Overloaded, StorageUnavailable
from gateway.model import TopicName
from gateway.shards.model import DONE, NOT_OWNER
from gateway.transfer import transfers as transfers_module
from gateway.transfer.payload import Addressed, Transfer, encode_payload
from tests.gateway.transfer.two_nodes import (
    FAULTLESS,
    SHARDS,
    Cluster,
    note,
    run_of,
    two_nodes,
)
from tests.support.lossy_network import Chances
from tests.support.waiting import turns, until

LOWER, UPPER = range(SHARDS // 2), range(SHARDS // 2, SHARDS)


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers_module, "RETRY_S", 0.001)


def all_are_clear(cluster: Cluster) -> bool:
    return not any(
        shard.outgoing.open_targets
        for node in cluster.nodes
        for shard in node.transfers._shards.values()
    )


async def test_effects_of_one_log_are_one_append(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as cluster:
        topic = await cluster.topic("t")
        await cluster.start()
        first = cluster.first
        one, two = cluster.numbers(topic, LOWER)[:2]
        topic = first.topics.get(topic.name)
        before = first.storage.next_sequence, first.broker.writer.batches_appended
        results: dict[int, object] = {}
        addressed = [Addressed(topic, n, run_of(b"v")) for n in (one, two)]
        first.append(0, addressed, note(results, 0))
        await until(lambda: 0 in results)
        assert results == {0: None}
        assert first.broker.writer.batches_appended == before[1] + 2
        assert first.transfers.begun == 0
        assert [first.values(topic, n) for n in (one, two)] == [[b"v"], [b"v"]]


async def test_effects_of_another_log_follow_what_is_local(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as cluster:
        topic = await cluster.topic("t")
        await cluster.start()
        first, second = cluster.nodes
        topic = first.topics.get(topic.name)
        here, there = cluster.numbers(topic, LOWER)[0], cluster.numbers(topic, UPPER)[0]
        results: dict[int, object] = {}
        assert not first.transfers.in_one_log
        run = run_of(b"1", b"2")
        addressed = [Addressed(topic, here, run_of(b"h")), Addressed(topic, there, run)]
        first.append(0, addressed, note(results, 0))
        assert second.values(topic, there) == []
        await until(lambda: all_are_clear(cluster) and 0 in results)
        assert first.values(topic, here) == [b"h"]
        assert second.values(topic, there) == [b"1", b"2"]
        assert (first.transfers.begun, first.transfers.applied) == (1, 1)


async def test_the_storage_refuses_an_intent_and_the_next_has_its_number(
    tmp_path: Path,
) -> None:
    async with two_nodes(tmp_path) as cluster:
        topic = await cluster.topic("t")
        await cluster.start()
        first, second = cluster.nodes
        topic = first.topics.get(topic.name)
        there = cluster.numbers(topic, UPPER)[0]
        results: dict[int, object] = {}
        first.storage.is_dead = True  # refuses
        first.append(0, [Addressed(topic, there, run_of(b"lost"))], note(results, 0))
        first.storage.is_dead = False
        first.append(0, [Addressed(topic, there, run_of(b"kept"))], note(results, 1))
        await until(lambda: all_are_clear(cluster) and 1 in results)
        assert isinstance(results[0], StorageUnavailable)
        assert results[1] is None
        assert second.values(topic, there) == [b"kept"]


async def test_a_local_append_comes_after_an_open_transfer_to_its_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target's shard moves to the source's node amid the transfer: it is sent all the same."""
    async with two_nodes(tmp_path) as cluster:
        topic = await cluster.topic("t")
        await cluster.start()
        first, second = cluster.nodes
        topic = first.topics.get(topic.name)
        there = cluster.numbers(topic, UPPER)[0]
        shard = second.broker.partition(second.topics.get(topic.name), there).shard
        await second.kill()
        monkeypatch.setattr(transfers_module, "RETRY_S", 60)  # the test itself sends again
        for number in range(3):
            first.append(
                0, [Addressed(topic, there, run_of(b"%d" % number))], lambda _error: None
            )
        await turns(50)
        assert first.transfers.is_open(0, shard)
        cluster.move(shard, first)  # whose log has nothing of it yet
        await cluster.settled()
        first.append(0, [Addressed(topic, there, run_of(b"3"))], lambda _error: None)
        assert first.values(topic, there) == []
        first.transfers._send_all(first.transfers._shards[0])
        await until(lambda: not first.transfers.is_open(0, shard))
        assert first.values(topic, there) == [b"0", b"1", b"2", b"3"]
        assert first.transfers.begun == 4


async def test_a_part_from_an_owner_of_before_is_refused(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as cluster:
        topic = await cluster.topic("t")
        await cluster.start()
        first, second = cluster.nodes
        topic = first.topics.get(topic.name)
        there = cluster.numbers(topic, UPPER)[0]
        target = second.broker.partition(second.topics.get(topic.name), there).shard
        shard = first.transfers._shards[0]
        zombie = Addressed(topic, there, run_of(b"zombie"))
        payload = encode_payload([zombie])
        await first.restart()
        replies: dict[int, object] = {}
        for epoch in (shard.epoch, shard.epoch + 1):
            transfer = Transfer(0, target, epoch, 1, payload)
            second.broker.shard_calls.call(target, "transfer", transfer, note(replies, epoch))
            await until(partial(replies.__contains__, epoch))
        assert list(replies.values()) == [NOT_OWNER, DONE]
        assert second.values(topic, there) == [b"zombie"]


async def test_a_node_that_has_given_its_shard_away_sends_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next owner, here the same node again, sends all that has no end in the journal."""
    async with two_nodes(tmp_path, chances=Chances(drop=1)) as cluster:
        topic = await cluster.topic("t")
        await cluster.start()
        first, second = cluster.nodes
        topic = first.topics.get(topic.name)
        there = cluster.numbers(topic, UPPER)[0]
        for number in range(3):
            run = run_of(b"%d" % number)
            first.append(0, [Addressed(topic, there, run)], lambda _error: None)
        shard = first.transfers._shards[0]
        monkeypatch.setattr(transfers_module, "RETRY_S", 60)
        await until(lambda: bool(shard.retries) and not any(shard.in_flight.values()))
        cluster.move(0, None)
        cluster.network.chances = FAULTLESS
        first.transfers._send_all(shard)  # before it is closed
        assert not any(shard.in_flight.values())
        await cluster.settled()
        assert 0 not in first.transfers.open_shards
        assert second.values(topic, there) == []
        cluster.move(0, first)
        await cluster.settled()
        await until(lambda: len(second.values(topic, there)) == 3)
        await until(lambda: all_are_clear(cluster))
        assert second.values(topic, there) == [b"0", b"1", b"2"]


async def test_a_topic_deleted_amid_a_transfer_ends_it(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as cluster:
        topics = [await cluster.topic(name) for name in ("gone", "stays")]
        await cluster.start()
        first, second = cluster.nodes
        gone, stays = (first.topics.get(topic.name) for topic in topics)
        shard, there = next(
            (shard, (a[0], b[0]))
            for shard in UPPER
            if (a := cluster.numbers(gone, {shard})) and (b := cluster.numbers(stays, {shard}))
        )
        cluster.network.chances = Chances(drop=1)
        for number in range(2):
            for topic, at in zip((gone, stays), there, strict=True):
                addressed = [Addressed(topic, at, run_of(b"%d" % number))]
                first.append(0, addressed, lambda _error: None)
        await turns(20)
        await second.topics.delete(gone.name)
        cluster.network.chances = FAULTLESS
        await until(lambda: all_are_clear(cluster))
        assert second.values(stays, there[1]) == [b"0", b"1"]
        applied = second.transfers._shards[shard].stream.get(b"a\0\0")
        assert applied == (4).to_bytes(8, "big")
        assert second.values(gone, there[0]) == []


async def test_what_was_accepted_is_not_refused_by_a_bound_of_later(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as cluster:
        topic = await cluster.topic("t")
        await cluster.start()
        first, second = cluster.nodes
        there = cluster.numbers(topic, UPPER)[0]
        topic = first.topics.get(topic.name)
        await second.topics.alter_configs(topic.name, {"max.message.bytes": "200"})
        first.append(0, [Addressed(topic, there, run_of(bytes(1000)))], lambda _error: None)
        await until(lambda: all_are_clear(cluster))
        assert second.values(topic, there) == [bytes(1000)]
        large = Addressed(topic, there, run_of(bytes(2 << 20)))
        with pytest.raises(MessageTooLarge):
            first.transfers.check(large, first.coalescer)


async def test_open_transfers_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers_module, "OPEN_BYTES_MAX", 100)
    async with two_nodes(tmp_path) as cluster:
        topic = await cluster.topic("t")
        await cluster.start()
        first, second = cluster.nodes
        topic = first.topics.get(topic.name)
        there = cluster.numbers(topic, UPPER)[0]
        await second.kill()
        one = [Addressed(topic, there, run_of(bytes(100)))]
        first.append(0, one, lambda _error: None)
        with pytest.raises(Overloaded):
            first.append(0, one, lambda _error: None)
        await second.restart()
        await until(lambda: all_are_clear(cluster))
        first.append(0, one, lambda _error: None)
        await until(lambda: all_are_clear(cluster))
        assert second.values(topic, there) == [bytes(100)] * 2


@pytest.mark.parametrize("seed", range(12))
async def test_a_lossy_network_and_kills_at_any_append(tmp_path: Path, seed: int) -> None:
    """Against a plain model: for each source and partition, what was accepted, once, in order."""
    chance = random.Random(seed)
    async with two_nodes(tmp_path, seed=seed, chances=Chances()) as cluster:
        topic_name = (await cluster.topic("t", 16)).name
        await cluster.start()
        answered: dict[int, object] = {}
        asked: list[tuple[int, list[int]]] = []  # source shard, partitions; by number
        for number in range(60):
            node = chance.choice(cluster.nodes)
            topic = node.topics.get(topic_name)
            own = LOWER if node is cluster.first else UPPER
            source = chance.choice(own)
            places = chance.sample(range(16), chance.randint(1, 3))
            asked.append((source, places))
            addressed = [Addressed(topic, n, run_of(b"%d" % number)) for n in places]
            if chance.random() < 0.15:
                node.storage.stores_last = chance.random() < 0.5
                node.storage.appends_left = chance.randint(1, 4)
            try:
                node.append(source, addressed, note(answered, number))
            except StorageUnavailable as error:
                answered[number] = error
            await turns(chance.randint(0, 6))
            for one in cluster.nodes:
                if one.storage.is_dead:
                    await one.restart()
        for one in cluster.nodes:
            one.storage.appends_left = 0
        cluster.network.chances = Chances(0.05, 0.05, 0)
        await until(lambda: all_are_clear(cluster))
        _check(cluster, topic_name, asked, answered)


def _check(
    cluster: Cluster,
    topic_name: TopicName,
    asked: list[tuple[int, list[int]]],
    answered: dict[int, object],
) -> None:
    topic = cluster.first.topics.get(topic_name)
    lower = set(cluster.numbers(topic, LOWER))
    found: dict[int, set[int]] = {number: set() for number in range(len(asked))}
    for place in range(16):
        node = cluster.first if place in lower else cluster.second
        numbers = [int(value or b"") for value in node.values(topic, place)]
        assert len(set(numbers)) == len(numbers), "an effect is there twice"
        for source in range(SHARDS):
            of_source = [number for number in numbers if asked[number][0] == source]
            assert of_source == sorted(of_source), "effects of a source are out of order"
        for number in numbers:
            found[number].add(place)
    for number, (_, places) in enumerate(asked):
        assert found[number] in (set(), set(places)), "decided for some targets only"
        if number in answered and answered[number] is None:
            assert found[number] == set(places), "an accepted effect is lost"
        elif number in answered:
            assert found[number] == set(), "a refused operation is done"
