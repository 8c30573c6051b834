"""Records of sessions on disk: none is left of what is over, whatever the disk has refused."""

from pathlib import Path

import pytest

from adapters.mqtt.sessions.store import filter_key, run_key
from adapters.mqtt.subscriptions.subscription import Subscription
from tests.adapters.mqtt.disk_faults import RARELY, full_disk
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    restartable_node,
)
from tests.adapters.mqtt.subscriptions.test_ended import behind, stored
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop
from tests.support.waiting import turns, until

OVER = ((Prop.SESSION_EXPIRY, 0),)
REFUSED = 0x83
NO_SUBSCRIPTION_EXISTED = 0x11


def keys(one: RestartableNode) -> list[bytes]:
    return sorted(one.adapter.node.context.store.stream.values)


def filters(one: RestartableNode, name: str = "s") -> list[str]:
    session = one.session(name)
    assert session is not None
    return sorted(session.subscriptions)


async def unsubscribed(client: Client, *names: str) -> list[int]:
    """Return the codes of UNSUBACK."""
    client.send(wire.unsubscribe(client.next_id(), names))
    return (await client.receive(Kind.UNSUBACK)).codes


async def test_what_was_kept_once_and_is_unsubscribed_leaves_no_record(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1), ("u", 1), ("$share/g/t", 1))
        await subscriber.leave()
        once = await one.client("s", clean=False)
        assert once.session_present
        assert await unsubscribed(once, "t", "$share/g/t", "never") == [0, 0, 0x11]
        assert filter_key("s", "t") not in keys(one)
        await once.leave()
        await one.gone("s")
        assert keys(one) == []

        again = await one.client("s", kept=True)
        await again.leave()
        await one.restart()
        assert filters(one) == []


async def test_a_rest_of_what_was_kept_once_is_not_written_down(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await behind(one, ("t", 1))
        await subscriber.message()
        await subscriber.drop()
        await one.gone("s")
        once = await one.client("s", clean=False, found=[(Prop.RECEIVE_MAXIMUM, 1)])
        first = await once.message()
        await once.unsubscribe("t")
        assert stored(one) == 0
        await once.acknowledge(first)
        assert [x.payload for x in await once.take(2)] == [b"1", b"2"]


async def test_an_unsubscribe_that_was_refused_is_written_down_later(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1), ("u", 1), ("v", 1))
        with full_disk(one):
            assert await unsubscribed(subscriber, "t", "u") == [REFUSED] * 2
        await subscriber.subscribe(("u", 1))  # which is there to stay
        one.adapter.node.sessions.checkpoint()
        await one.restart(crash=True)
        assert filters(one) == ["u", "v"]


async def test_an_unsubscribe_that_was_refused_can_be_said_again(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        with full_disk(one):
            assert await unsubscribed(subscriber, "t") == [REFUSED]
        assert await unsubscribed(subscriber, "t") == [NO_SUBSCRIPTION_EXISTED]
        await one.restart(crash=True)
        assert filters(one) == []


async def test_the_end_of_a_session_that_was_refused_is_written_down_later(
    tmp_path: Path,
) -> None:
    """MQTT-4.1.0-2: nothing of it is found by a session that comes after it."""
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1), ("u", 1))
        with full_disk(one):
            await subscriber.leave(found=OVER)
            await one.gone("s")
            await turns(20)
        assert filter_key("s", "t") in keys(one)
        again = await one.client("s", kept=True)
        assert not again.session_present
        await again.subscribe(("u", 1))
        one.adapter.node.sessions.checkpoint()
        await one.restart(crash=True)
        assert filters(one) == ["u"]


async def test_a_node_that_stops_writes_down_what_was_refused(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        with full_disk(one):
            await subscriber.leave(found=OVER)
            await one.gone("s")
            await turns(20)
        await one.restart()
        assert one.session("s") is None
        assert keys(one) == []


async def test_records_without_a_session_are_removed_at_the_start(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        kept = await one.client("s", kept=True)
        await kept.subscribe(("t", 1))
        strays = [filter_key("gone", "t"), run_key("gone", 7), b"\x05gone\0" + b"\0" * 8]
        stream = one.adapter.node.context.store.stream
        stream.put([(key, b"old") for key in strays], lambda _error: None)
        await one.restart()
        assert not set(strays) & set(keys(one))
        assert filters(one) == ["t"]


@pytest.mark.parametrize("group", [None, "g"])
async def test_a_refused_subscribe_of_a_session_that_is_over_undoes_nothing(
    tmp_path: Path, group: str | None
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        await one.client("s", kept=True)
        context, session = one.adapter.node.context, one.session("s")
        assert session is not None
        errors: list[object] = []
        with full_disk(one):
            subscription = Subscription("t", group=group, qos=1)
            context.subscribing.subscribe(session, [subscription], errors.append)
            one.adapter.node.sessions._end(session)
            await until(lambda: bool(errors))
        assert errors != [None]
        assert (context.subscription_count, context.groups) == (0, {})
