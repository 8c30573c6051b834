"""A client with many filters comes back: they are checked and put in force over turns."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from adapters.mqtt.reading.pacing import FILTERS_PER_STEP
from gateway.auth.ports import Operation
from gateway.auth.rules import RuleBook
from tests.adapters.mqtt.access.test_rule_changes import rule
from tests.adapters.mqtt.live import Client, Live, running
from tests.adapters.mqtt.sessions.test_disconnected_filters import (
    COUNT,
    KEPT,
    gone,
    shorten_slices,
    subscribed,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind
from tests.support.waiting import until


async def away(live: Live) -> None:
    """Make a session with many filters, whose client has gone."""
    await gone(live, await subscribed(live))
    await until(lambda: not len(live.adapter.node.context.distributor.trie))
    shorten_slices(live)


async def coming(live: Live) -> Client:
    """Send CONNECT; return when some filters are there, but not all."""
    client = await live.client()
    client.send(wire.connect("many", clean=False, found=KEPT))
    trie = live.adapter.node.context.distributor.trie
    await until(lambda: len(trie) > 2 * FILTERS_PER_STEP)
    assert len(trie) < COUNT
    return client


async def test_filters_are_checked_and_added_in_slices_before_connack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as live:
        await away(live)
        trie = live.adapter.node.context.distributor.trie
        turn = 0
        worked: Counter[tuple[str, int]] = Counter()
        loop = asyncio.get_running_loop()

        def turned() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(turned)

        def count(kind: str, owner: Any, name: str) -> None:
            work = getattr(owner, name)

            def counted(*args: Any, **options: Any) -> Any:
                worked[kind, turn] += 1
                return work(*args, **options)

            monkeypatch.setattr(owner, name, counted)

        loop.call_soon(turned)
        count("added", trie, "add")
        client = await coming(live)
        [connection] = live.adapter.listener.connections
        count("checked", cast("Any", connection).access, "may_subscribe")
        assert (await client.receive(Kind.CONNACK)).session_present
        assert len(trie) == COUNT
        for kind in ("added", "checked"):
            steps = [number for (of, _), number in worked.items() if of == kind]
            assert len(steps) > 5
            assert max(steps) <= FILTERS_PER_STEP


async def test_messages_that_come_meanwhile_are_delivered_once_and_in_order(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        await away(live)
        publisher = await live.connected("p")
        client = await coming(live)
        for number in range(4):
            publisher.send(wire.publish("0/a", b"%d" % number, qos=1, packet_id=number + 1))
            await publisher.receive(Kind.PUBACK)
        await client.receive(Kind.CONNACK)
        publisher.send(wire.publish("0/a", b"4", qos=1, packet_id=9))
        came = [(await client.receive(Kind.PUBLISH)).payload for _ in range(5)]
        assert came == [b"0", b"1", b"2", b"3", b"4"]
        client.send(wire.PINGREQ)
        await client.receive(Kind.PINGRESP)


async def test_a_rule_that_changes_meanwhile_counts_for_filters_checked_before(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        await away(live)
        trie = live.adapter.node.context.distributor.trie
        client = await coming(live)
        denied = rule("0/#", Operation.READ)
        await cast("RuleBook", live.kernel.authorizer).add_rules([denied])
        await client.receive(Kind.CONNACK)
        assert not trie.match(b"0/a").matches
        assert trie.match(b"1/a").matches


async def test_a_client_that_goes_meanwhile_leaves_no_filter(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await away(live)
        node = live.adapter.node
        trie = node.context.distributor.trie
        client = await coming(live)
        client.writer.transport.abort()
        await until(lambda: node.sessions.connected == 0 and not len(trie))
        again = await live.connected("many", clean=False, found=KEPT)
        assert len(trie) == COUNT
        publisher = await live.connected("p")
        publisher.send(wire.publish("7/a", b"x", qos=1))
        assert (await again.receive(Kind.PUBLISH)).payload == b"x"


async def test_a_client_that_takes_the_session_over_meanwhile_has_all_filters(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        await away(live)
        first = await coming(live)
        second = await live.connected("many", clean=False, found=KEPT)
        assert await first.ended_with() == []  # it had no CONNACK
        publisher = await live.connected("p")
        publisher.send(wire.publish("7/a", b"x", qos=1))
        assert (await second.receive(Kind.PUBLISH)).payload == b"x"
