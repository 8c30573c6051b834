"""Messages that a subscription matched before it ended are still delivered, once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapters.mqtt.delivery.ended_index import MatchWithEnded
from adapters.mqtt.subscriptions.ended import EndedSubscription
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.subscriptions.trie import Match
from gateway.records.codec import encode_batch
from gateway.writer import Write
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop
from tests.support.waiting import until

ONE = ((Prop.RECEIVE_MAXIMUM, 1),)
NO_LOCAL = 0x04
ENDS = pytest.mark.parametrize("crash", [False, True], ids=["stop", "crash"])


async def behind(
    one: RestartableNode, *filters: tuple[str, int], count: int = 3, qos: int = 1
) -> Client:
    """Return a subscriber that has the first of ``count`` messages of ``t``, unacknowledged."""
    subscriber = await one.client("s", kept=True, found=ONE)
    for number, subscription in enumerate(filters, 1):
        await subscriber.subscribe(subscription, found=[(Prop.SUBSCRIPTION_ID, number)])
    publisher = await one.client("p")
    await publisher.publish("t", numbered(count), qos=qos)
    return subscriber


def stored(one: RestartableNode) -> int:
    keys = one.adapter.node.context.store.stream.values
    return sum(key[:1] == b"\x05" for key in keys)


async def test_a_replacement_at_qos_0_leaves_the_rest(tmp_path: Path) -> None:
    """MQTT-3.8.4-4."""
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 2), qos=2)
        first = await subscriber.message()
        await subscriber.subscribe(("t", 0))
        publisher = await one.client("p")
        await publisher.publish("t", [b"new"], qos=1)
        at_most_once = await subscriber.message()
        assert (at_most_once.payload, at_most_once.qos) == (b"new", 0)
        await subscriber.acknowledge(first)
        assert (await subscriber.receive(Kind.PUBREL)).packet_id == first.packet_id
        subscriber.send(wire.ack(Kind.PUBCOMP, first.packet_id))
        rest = await subscriber.take(2)
        assert [(x.payload, x.qos) for x in rest] == [(b"1", 2), (b"2", 2)]
        assert [x.values(Prop.SUBSCRIPTION_ID) for x in rest] == [[1], [1]]
        await subscriber.silent()


@ENDS
@pytest.mark.parametrize("is_replaced", [False, True], ids=["unsubscribed", "replaced"])
async def test_the_rest_is_kept_over_a_restart(
    tmp_path: Path, *, is_replaced: bool, crash: bool
) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 1))
        first = await subscriber.message()
        if is_replaced:
            await subscriber.subscribe(("t", 0))
        else:
            await subscriber.unsubscribe("t")
        assert stored(one) == 1
        await (await one.client("q")).publish("t", [b"too late"], qos=1)
        await one.restart(crash=crash)
        back = await one.client("s", kept=True)
        found = await back.take(3)
        assert payloads(found) == [first.payload, b"1", b"2"]
        assert {x.qos for x in found} == {1}
        await back.silent()
        one.adapter.node.sessions.checkpoint()
        assert stored(one) == 0
        one.adapter.node.sessions.checkpoint()
        session = one.session("s")
        assert session is not None
        assert session.ended is None
        assert not session.reads_log


async def test_a_session_that_was_away_gets_what_came(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        await subscriber.drop()
        await one.gone("s")
        publisher = await one.client("p")
        await publisher.publish("t", numbered(4))
        back = await one.live.client(subscriber.version)
        properties = ((Prop.SESSION_EXPIRY, 3600), (Prop.RECEIVE_MAXIMUM, 1))
        back.send(
            wire.connect("s", clean=False, found=properties),
            wire.subscribe(1, [("t", 0)]),
            wire.unsubscribe(2, ["t"]),
        )
        client = Client(back, "s")
        kinds = [Kind.CONNACK, Kind.PUBLISH, Kind.SUBACK, Kind.UNSUBACK]
        came = [found for _ in kinds if (found := await client.next()) is not None]
        assert sorted(x.kind for x in came) == sorted(kinds)
        [first] = [x for x in came if x.kind is Kind.PUBLISH]
        await client.acknowledge(first)
        assert payloads([first, *await client.take(3)]) == numbered(4)
        await client.silent()


async def test_an_overlap_is_one_delivery_with_what_counted_then(tmp_path: Path) -> None:
    """MQTT-3.3.4-2 to -4, of the moment at which a message was matched."""
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 2), ("+", 1), qos=2)
        first = await subscriber.message()
        await subscriber.unsubscribe("t")
        await (await one.client("p")).publish("t", [b"new"], qos=2)
        await subscriber.acknowledge(first)
        await subscriber.receive(Kind.PUBREL)
        subscriber.send(wire.ack(Kind.PUBCOMP, first.packet_id))
        found = await subscriber.take(3)
        said = [(x.payload, x.qos, x.values(Prop.SUBSCRIPTION_ID)) for x in found]
        assert said == [(b"1", 2, [1, 2]), (b"2", 2, [1, 2]), (b"new", 1, [2])]
        await subscriber.silent()


async def test_subscribing_again_alike_ends_nothing(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 1))
        first = await subscriber.message()
        await subscriber.subscribe(("t", 1), found=[(Prop.SUBSCRIPTION_ID, 1)])
        assert stored(one) == 0
        await subscriber.acknowledge(first)
        assert payloads(await subscriber.take(2)) == [b"1", b"2"]


async def test_no_local_of_the_past_holds_for_the_rest(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 1 | NO_LOCAL), ("u", 1))
        first = await subscriber.message()
        subscriber.send(wire.publish("t", b"own", qos=1, packet_id=99))
        await subscriber.receive(Kind.PUBACK)
        await subscriber.subscribe(("t", 1))
        await subscriber.acknowledge(first)
        assert payloads(await subscriber.take(2)) == [b"1", b"2"]
        await subscriber.silent()


async def test_the_oldest_ended_ones_go_when_there_are_too_many(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt={"session": {"subscriptions_max": 2}}) as one:
        subscriber = await behind(one, ("t", 1), count=1)
        publisher = await one.client("p")
        for number in range(1, 20):
            await publisher.publish("t", [b"%d" % number])
            await subscriber.messages(number == 1)
            await subscriber.subscribe(("t", 1), found=[(Prop.SUBSCRIPTION_ID, number + 1)])
        session = one.session("s")
        assert session is not None
        assert session.ended is not None
        assert len(session.ended) == stored(one) == 2
        assert one.adapter.node.counters.ended_dropped == 17


async def test_bytes_of_ended_filters_are_bounded(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt={"session": {"filter_bytes_max": 100}}) as one:
        subscriber = await behind(one, ("t", 1), count=2)
        await subscriber.message()
        publisher = await one.client("p")
        for number in range(9):
            name = f"{number}" + "x" * 39
            await subscriber.subscribe((name, 1))
            await publisher.publish("t", [b"more"])
            await subscriber.unsubscribe(name)
        session = one.session("s")
        assert session is not None
        assert session.ended is not None
        assert session.ended.filter_bytes == 80
        assert len(session.ended) == stored(one) == 2
        assert one.adapter.node.counters.ended_dropped == 7


async def test_who_was_behind_and_may_read_nothing_is_not_asked_any_more(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 1))
        await subscriber.message()
        session = one.session("s")
        assert session is not None
        assert session.behind
        [partition_id] = session.behind
        session.forbidden = frozenset({"t"})
        await subscriber.unsubscribe("t")
        catch_up = one.adapter.node.feeds.catch_up(partition_id)
        assert catch_up is not None
        catch_up._wanted.add(session)
        await subscriber.subscribe(("u", 1))
        assert (session.behind, len(catch_up._wanted)) == ({}, 0)


async def test_what_was_acknowledged_a_moment_ago_counts(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 1), count=1)
        await subscriber.message()
        session = one.session("s")
        assert session is not None

        def on_done(_error: object) -> None:
            """The producer is answered in this turn, the feed is told in the next one."""
            feed = next(x for x in one.adapter.node.feeds if x.partition is write.partition)
            assert feed.live_offset < feed.partition.high_watermark
            session.unsubscribe(["t"], lambda _error: None)

        batch = encode_batch([(one.clock.unix_ms(), b"t", b"now", ())])
        write = one.kernel.broker.prepare(one.partition(), batch)
        assert isinstance(write, Write)
        one.kernel.broker.append([write], on_done)
        await until(lambda: not session.subscriptions)
        assert session.ended is not None
        assert len(session.ended) == 1


async def test_rules_that_end_a_right_end_the_rest(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 1))
        first = await subscriber.message()
        await subscriber.unsubscribe("t")
        session = one.session("s")
        assert session is not None
        assert session.connection is not None
        session.connection.access = cast(
            "Any", SimpleNamespace(may_subscribe=lambda topic_filter: topic_filter != "t")
        )
        one.adapter.node.context.endings.drop_forbidden(session)
        await subscriber.acknowledge(first)
        await subscriber.silent()
        one.adapter.node.sessions.checkpoint()
        assert stored(one) == 0


async def test_what_ends_without_a_rest_is_not_kept(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 1), count=2)
        await subscriber.message()
        for _ in range(5):
            await subscriber.subscribe(("other", 1))
            await subscriber.unsubscribe("other")
        assert stored(one) == 0


async def test_a_session_that_ends_takes_its_rest_with_it(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 1))
        await subscriber.message()
        await subscriber.unsubscribe("t")
        await subscriber.drop()
        await one.gone("s")
        assert stored(one) == 1
        again = await one.client("s", clean=True)
        assert stored(one) == 0
        await again.silent()


async def test_without_a_kept_session_the_rest_comes_too(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", found=ONE)
        await subscriber.subscribe(("t", 1))
        await (await one.client("p")).publish("t", numbered(3))
        first = await subscriber.message()
        await subscriber.unsubscribe("t")
        await subscriber.acknowledge(first)
        assert payloads(await subscriber.take(2)) == [b"1", b"2"]
        assert stored(one) == 0
        one.adapter.node.sessions.checkpoint()
        session = one.session("s")
        assert session is not None
        assert session.ended is None


def test_a_match_counts_from_start_to_end() -> None:
    owner = cast("Any", SimpleNamespace())
    ended = [
        EndedSubscription(
            owner, 2, Subscription("a", qos=2, identifier=8), starts={7: 4}, ends={7: 6}
        ),
        EndedSubscription(
            owner, 1, Subscription("a", qos=1, identifier=9), starts={7: 2}, ends={7: 5}
        ),
    ]
    living = Match(owner, [Subscription("a", qos=1, identifier=3, starts={7: 7})])
    match = MatchWithEnded(owner, ended, living)

    said = []
    at = 0
    while at < 10:
        found, until = match.at(7, at, 10)
        said.append((at, until, found and (found.qos, found.identifiers)))
        at = until

    assert said == [
        (0, 2, None),
        (2, 4, (1, (9,))),
        (4, 5, (2, (9, 8))),
        (5, 6, (2, (8,))),
        (6, 7, None),
        (7, 10, (1, (3,))),
    ]
    assert MatchWithEnded(owner, ended, None).at(6, 4, 9) == (None, 9)
