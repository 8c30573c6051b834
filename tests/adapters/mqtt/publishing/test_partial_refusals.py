"""Some messages of a read are refused: the others are served as if they had come alone."""

from pathlib import Path
from typing import Any

import pytest

from gateway.auth.ports import Operation
from tests.adapters.mqtt.access.test_rule_changes import add, rule
from tests.adapters.mqtt.publishing.test_delayed import due
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, Kind

LARGE = b"x" * 500
TOO_LARGE, SUCCESS = 0x97, 0
DENIAL = rule("a", Operation.WRITE, client="p")


async def take_small_only(one: RestartableNode) -> None:
    """Let the topic of the log take nothing of the size of ``LARGE`` any more."""
    await one.kernel.topics.alter_configs(
        one.partition().topic.name, {"max.message.bytes": "300"}
    )


async def scene(one: RestartableNode, **options: Any) -> tuple[Client, Client]:
    """Return a publisher and a subscriber of all; the log takes small messages only."""
    publisher = await one.client("p", kept=True, **options)
    subscriber = await one.client("s", kept=True)
    await subscriber.subscribe(("#", 2))
    await publisher.publish("a", [b"first"])
    await subscriber.take(1)
    await take_small_only(one)
    return publisher, subscriber


def packets(found: dict[int, bytes], topic: str = "a", **options: Any) -> bytes:
    """Return PUBLISH packets of one topic by packet identifier: a run."""
    return b"".join(
        wire.publish(topic, payload, packet_id=number, **options)
        for number, payload in found.items()
    )


@pytest.mark.parametrize(("qos", "kind"), [(1, Kind.PUBACK), (2, Kind.PUBREC)])
async def test_only_what_is_too_large_is_refused(
    tmp_path: Path, qos: int, kind: Kind
) -> None:  # MQTT-4.6.0-2, MQTT-4.6.0-3
    async with restartable_node(tmp_path) as one:
        publisher, subscriber = await scene(one)
        run = {20: b"1", 21: LARGE, 22: b"2", 23: b"3"}
        publisher.send(packets(run, qos=qos))
        found = [await publisher.receive(kind) for _ in run]
        assert [(x.packet_id, x.code) for x in found] == [
            (20, SUCCESS),
            (21, TOO_LARGE),
            (22, SUCCESS),
            (23, SUCCESS),
        ]
        assert payloads(await subscriber.take(3)) == [b"1", b"2", b"3"]
        assert one.adapter.node.counters.publish_received == 1 + len(run)


async def test_at_qos_0_only_what_is_too_large_is_dropped(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        publisher, subscriber = await scene(one)
        publisher.send(packets({0: b"1"}), packets({0: LARGE}), packets({0: b"2"}))
        assert payloads(await subscriber.messages(2)) == [b"1", b"2"]


async def test_what_is_delayed_stays_delayed(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        publisher, subscriber = await scene(one)
        run = {20: b"1", 21: LARGE, 22: b"2"}
        publisher.send(packets(run, topic="$delayed/60/a", qos=1))
        found = [await publisher.receive(Kind.PUBACK) for _ in run]
        assert [x.code for x in found] == [SUCCESS, TOO_LARGE, SUCCESS]
        await subscriber.silent()
        await due(one, 60_000)
        assert payloads(await subscriber.take(2)) == [b"1", b"2"]


async def test_a_3_x_client_hears_what_was_taken_before_its_connection_is_closed(
    tmp_path: Path,
) -> None:
    """Without the answers it would send all messages again after each reconnection."""
    async with restartable_node(tmp_path) as one:
        publisher, subscriber = await scene(one, version=V3_1_1)
        run = {20: b"1", 21: b"2", 22: LARGE}
        publisher.send(packets(run, qos=1, version=V3_1_1))
        found = await publisher.ended_with()
        assert found == [(Kind.PUBACK, 0), (Kind.PUBACK, 0)]
        assert payloads(await subscriber.take(2)) == [b"1", b"2"]


async def test_what_was_kept_is_not_refused_when_it_is_sent_again(
    tmp_path: Path,
) -> None:  # MQTT-4.3.3-10
    """Its identifier would be free for the client, and its next message taken for a repeat."""
    async with restartable_node(tmp_path) as one:
        publisher, subscriber = await scene(one)
        publisher.send(packets({20: b"1"}, qos=2))
        assert (await publisher.receive(Kind.PUBREC)).code == SUCCESS
        await add(one, DENIAL)
        publisher.send(packets({20: b"1"}, qos=2, dup=True))
        assert (await publisher.receive(Kind.PUBREC)).code == SUCCESS
        publisher.send(wire.ack(Kind.PUBREL, 20))
        assert (await publisher.receive(Kind.PUBCOMP)).code == SUCCESS
        publisher.send(packets({20: b"new"}, topic="b", qos=2))
        assert (await publisher.receive(Kind.PUBREC)).code == SUCCESS
        assert payloads(await subscriber.take(2)) == [b"1", b"new"]


@pytest.mark.parametrize("is_denied", [False, True])
async def test_what_is_refused_beside_a_repeat_is_answered_by_itself(
    tmp_path: Path, *, is_denied: bool
) -> None:
    async with restartable_node(tmp_path) as one:
        publisher, subscriber = await scene(one)
        publisher.send(packets({20: b"1", 22: b"2"}, qos=2))
        for _ in range(2):
            assert (await publisher.receive(Kind.PUBREC)).code == SUCCESS
        if is_denied:
            await add(one, DENIAL)
        run = {20: b"1", 21: LARGE, 22: b"2", 23: b"3"}
        publisher.send(packets(run, qos=2, dup=True))
        found = [await publisher.receive(Kind.PUBREC) for _ in run]
        refusal = 0x87 if is_denied else TOO_LARGE
        last = 0x87 if is_denied else SUCCESS
        assert [(x.packet_id, x.code) for x in found] == [
            (20, SUCCESS),
            (21, refusal),
            (22, SUCCESS),
            (23, last),
        ]
        got = [b"1", b"2"] if is_denied else [b"1", b"2", b"3"]
        assert payloads(await subscriber.take(len(got))) == got
        await subscriber.silent()
