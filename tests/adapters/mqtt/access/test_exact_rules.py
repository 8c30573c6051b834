"""Rules that name a filter exactly: what they deny is left out of wider subscriptions."""

from pathlib import Path
from typing import Any

import pytest

from adapters.mqtt.rule_types import EQ, FILTER, MQTT_TOPIC
from gateway.auth.ports import Operation, Rule
from tests.adapters.mqtt.access.test_rule_changes import add, delete, granted
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support.mqtt_wire import V3_1_1, V5, Prop

SECRET = "test/nosubscribe"  # as paho's interoperability suites have it
FAILURE_OF_3 = 0x80
NOT_AUTHORIZED = 0x87
CONFIGURED = {"effect": "deny", "action": "subscribe", "filter": SECRET, "match": "eq"}


def denial(text: str = SECRET, **more: Any) -> Rule:
    kind, pattern = MQTT_TOPIC, EQ
    return Rule("*", Operation.READ, kind, pattern, text, allow=False, **more)


async def say(client: Client, number: bytes, *, qos: int = 1) -> None:
    """Publish to the denied topic, and to another that the same filters match."""
    for topic in (SECRET, "test/open"):
        await client.publish(topic, [topic.encode() + number], qos=qos)


def seen(*numbers: bytes, secret: bool = False) -> list[bytes]:
    """Return what ``say`` has sent that may be read."""
    topics = [SECRET, "test/open"] if secret else ["test/open"]
    return [topic.encode() + number for number in numbers for topic in topics]


async def start(one: RestartableNode, *, stored: bool) -> None:
    if stored:
        await add(one, denial())


@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "configured"])
async def test_only_the_filter_itself_is_refused(
    tmp_path: Path, *, version: int, stored: bool
) -> None:  # paho client_test.py, test_subscribe_failure
    options: dict[str, Any] = {} if stored else {"mqtt": {"acl": [CONFIGURED]}}
    async with restartable_node(tmp_path, **options) as one:
        await start(one, stored=stored)
        client = await one.client("a", version=version)
        refused = NOT_AUTHORIZED if version == V5 else FAILURE_OF_3
        assert await granted(client, SECRET) == [refused]
        assert await granted(client, "test/nosubscribe/x", "+/+", "#") == [1, 1, 1]


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "configured"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_its_messages_are_left_out_on_delivery(
    tmp_path: Path, *, qos: int, stored: bool
) -> None:
    options: dict[str, Any] = {} if stored else {"mqtt": {"acl": [CONFIGURED]}}
    async with restartable_node(tmp_path, **options) as one:
        await start(one, stored=stored)
        publisher, reader = await one.client("p"), await one.client("r")
        await reader.subscribe(("+/+", qos), ("#", qos))
        await say(publisher, b"1", qos=qos)
        await say(publisher, b"2", qos=qos)
        assert payloads(await reader.take(2)) == seen(b"1", b"2")
        await reader.silent()


async def test_it_is_for_whom_it_names_and_goes_again(tmp_path: Path) -> None:
    rule = denial(client="r")
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        reader, witness = await one.client("r"), await one.client("w")
        for client in (reader, witness):
            await client.subscribe(("test/#", 1))
        await say(publisher, b"1")
        await add(one, rule)
        await say(publisher, b"2")
        await delete(one, rule)
        await say(publisher, b"3")

        expected = [*seen(b"1", secret=True), *seen(b"2"), *seen(b"3", secret=True)]
        assert payloads(await reader.take(5)) == expected
        assert payloads(await witness.take(6)) == seen(b"1", b"2", b"3", secret=True)
        await reader.silent()


async def test_a_placeholder_is_the_clients_own_name(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        publisher, reader = await one.client("p"), await one.client("open")
        other = await one.client("nosubscribe")
        for client in (reader, other):
            await client.subscribe(("test/+", 1))
        await add(one, denial("test/%c"))
        await say(publisher, b"1")
        assert payloads(await reader.take(1)) == [f"{SECRET}1".encode()]
        assert payloads(await other.take(1)) == seen(b"1")


async def test_what_was_missed_is_left_out_when_the_session_comes_back(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        await add(one, denial())
        publisher, reader = await one.client("p"), await one.client("r", kept=True)
        await reader.subscribe(("+/+", 1))
        await reader.leave()
        await say(publisher, b"1")
        await one.restart()
        publisher, reader = await one.client("p"), await one.client("r", kept=True)
        assert reader.session_present
        await say(publisher, b"2")
        assert payloads(await reader.take(2)) == seen(b"1", b"2")
        await reader.silent()


async def test_what_an_ended_subscription_has_yet_to_send_is_left_out(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        reader = await one.client("s", kept=True, found=((Prop.RECEIVE_MAXIMUM, 1),))
        await reader.subscribe(("test/+", 1))
        publisher = await one.client("p")
        await say(publisher, b"1")
        await say(publisher, b"2")
        first = await reader.message()
        await reader.unsubscribe("test/+")
        await add(one, denial())
        await reader.acknowledge(first)
        assert payloads(await reader.take(2)) == seen(b"1", b"2")
        await reader.silent()


async def test_retained_messages_are_left_out(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        await add(one, denial())
        publisher = await one.client("p")
        for topic in (SECRET, "test/open"):
            await publisher.publish(topic, [topic.encode()], retain=True)
        for qos in (0, 1):
            reader = await one.client(f"r{qos}")
            await reader.subscribe(("test/+", qos))
            assert payloads(await reader.take(1)) == [b"test/open"]
            await reader.silent()


async def test_a_shared_subscription_that_would_read_it_is_refused(tmp_path: Path) -> None:
    """Its members share positions, so that nothing could be left out for one of them."""
    async with restartable_node(tmp_path) as one:
        await add(one, denial())
        client = await one.client("a")
        asked = ("$share/g/+/+", "$share/g/other/#")
        assert await granted(client, *asked) == [NOT_AUTHORIZED, 1]


async def test_an_exact_allow_is_for_the_filter_as_it_is_written(tmp_path: Path) -> None:
    kind = MQTT_TOPIC
    reading = Rule("*", Operation.READ, kind, EQ, "+/+")
    writing = Rule("*", Operation.WRITE, kind, FILTER, "#")
    async with restartable_node(tmp_path, mqtt={"acl_default": "deny"}) as one:
        await add(one, reading, writing)
        client = await one.client("a")
        assert await granted(client, "+/+", "a/b", "a/+") == [1, NOT_AUTHORIZED, NOT_AUTHORIZED]
        await client.publish("a/b", [b"x"])
        assert payloads(await client.take(1)) == [b"x"]
