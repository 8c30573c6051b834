"""A client with many filters goes: they match nothing at once, and are removed over turns."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from adapters.mqtt.ports import Subscriber
from adapters.mqtt.reading.pacing import FILTERS_PER_STEP, Pace
from adapters.mqtt.subscriptions import filters, trie
from gateway.auth.ports import Operation
from gateway.auth.rules import RuleBook
from tests.adapters.mqtt.access.test_rule_changes import rule
from tests.adapters.mqtt.live import Client, Live, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop
from tests.support.waiting import until

KEPT = ((Prop.SESSION_EXPIRY, 3600),)
COUNT = 20 * FILTERS_PER_STEP


async def subscribed(live: Live, client_id: str = "many") -> Client:
    """Return a client whose session outlives it, with many filters."""
    client = await live.connected(client_id, found=KEPT)
    client.send(wire.subscribe(1, [(f"{n}/+", 1) for n in range(COUNT)]))
    await client.receive(Kind.SUBACK)
    return client


def shorten_slices(live: Live) -> None:
    """Bound each turn to one step."""
    pace: Pace = live.adapter.node.context.pace
    pace._slice_s = 0.0


async def coming_back(live: Live) -> Client:
    """Send CONNECT; return when its filters are no longer being removed."""
    client = await live.client()
    client.send(wire.connect("many", clean=False, found=KEPT))
    left = live.adapter.node.context.disconnected_filters._left
    await until(lambda: not left)
    return client


async def gone(live: Live, client: Client) -> None:
    client.send(wire.disconnect())
    client.writer.close()
    await until(lambda: live.adapter.node.sessions.connected == 0)


async def test_filters_of_a_client_that_has_gone_are_removed_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as live:
        client = await subscribed(live)
        shorten_slices(live)
        of_node = live.adapter.node.context.distributor.trie
        turn = 0
        removed: dict[int, int] = {}
        remove = of_node.remove

        def turned() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(turned)

        def counted(topic_filter: str, subscriber: Subscriber) -> object:
            removed[turn] = removed.get(turn, 0) + 1
            assert not of_node.match(b"0/a").matches
            return remove(topic_filter, subscriber)

        loop = asyncio.get_running_loop()
        loop.call_soon(turned)
        monkeypatch.setattr(of_node, "remove", counted)
        await gone(live, client)
        assert not of_node.match(b"0/a").matches
        await until(lambda: not len(of_node))
        assert sum(removed.values()) == COUNT
        assert max(removed.values()) <= FILTERS_PER_STEP


async def test_a_client_that_comes_back_before_all_are_removed_has_them_all(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        client = await subscribed(live)
        shorten_slices(live)
        context = live.adapter.node.context
        await gone(live, client)
        held = context.pace  # nobody removes anything meanwhile
        async with held:
            publisher = await live.connected("p")
            publisher.send(wire.publish("0/a", b"while away", qos=1))
            await publisher.receive(Kind.PUBACK)
            left = len(context.distributor.trie)
            assert left
            again = await coming_back(live)
        assert (await again.receive(Kind.CONNACK)).session_present
        assert (await again.receive(Kind.PUBLISH)).payload == b"while away"
        publisher.send(wire.publish(f"{COUNT - 1}/a", b"now", qos=1))
        assert (await again.receive(Kind.PUBLISH)).payload == b"now"
        assert len(context.distributor.trie) == COUNT
        publisher.send(wire.publish("1/a", b"later", qos=1))
        assert (await again.receive(Kind.PUBLISH)).payload == b"later"


async def test_what_rules_deny_meanwhile_is_removed_for_one_who_comes_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        client = await subscribed(live)
        shorten_slices(live)
        context = live.adapter.node.context
        await gone(live, client)
        async with context.pace:
            assert len(context.distributor.trie)
            denied = rule("0/#", Operation.READ)
            await cast("RuleBook", live.kernel.authorizer).add_rules([denied])
            client = await coming_back(live)
        await client.receive(Kind.CONNACK)
        assert not context.distributor.trie.match(b"0/a").matches
        assert context.distributor.trie.match(b"1/a").matches


async def test_filters_that_come_back_are_not_compared_with_each_topic_of_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0

    def counted(topic_filter: str, topic: str) -> bool:
        nonlocal compared
        compared += 1
        return filters.matches(topic_filter, topic)

    async with running(tmp_path) as live:
        await gone(live, await subscribed(live))
        found = live.adapter.node.context.distributor.trie
        await until(lambda: not len(found))
        for number in range(40):
            found.match(f"of late/{number}".encode())
        monkeypatch.setattr(trie, "matches", counted)
        await live.connected("many", clean=False, found=KEPT)
        await until(lambda: len(found) == COUNT)
    assert compared == 0
