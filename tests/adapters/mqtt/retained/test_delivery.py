"""Retained messages leave many in one write, as they would one by one."""

from pathlib import Path

import pytest

from tests.adapters.mqtt.restartable_node import (
    RestartableNode,
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Prop

SIZES = (0, 1, 100, 127, 128, 20_000)


async def retain(one: RestartableNode, stretch: dict[str, bytes], *, qos: int = 1) -> None:
    publisher = await one.client("p")
    for topic, payload in stretch.items():
        await publisher.publish(topic, [payload], qos=qos, retain=True)


@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_sizes_differ_within_a_write(tmp_path: Path, qos: int, version: int) -> None:
    wanted = {f"r/{'t' * size}": b"x" * (size + 1) for size in SIZES}
    async with restartable_node(tmp_path) as one:
        await retain(one, wanted, qos=2)
        subscriber = await one.client("s", version=version)
        await subscriber.subscribe(("r/+", qos))
        found = await subscriber.messages(len(wanted))
        assert [(x.topic, x.payload) for x in found] == sorted(wanted.items())
        assert all((x.qos, x.retain) == (qos, True) for x in found)  # MQTT-3.3.1-8
        if qos:
            assert [x.packet_id for x in found] == list(range(1, len(wanted) + 1))
        await subscriber.silent()


async def test_each_has_the_subscription_identifier(tmp_path: Path) -> None:  # MQTT-3.3.4-3
    async with restartable_node(tmp_path) as one:
        await retain(one, {"a": b"1", "b": b"2"})
        subscriber = await one.client("s")
        await subscriber.subscribe(("#", 1), found=((Prop.SUBSCRIPTION_ID, 300),))
        found = await subscriber.messages(2)
        assert [x.value(Prop.SUBSCRIPTION_ID) for x in found] == [300, 300]


@pytest.mark.parametrize("qos", [0, 1])
async def test_what_is_too_large_is_left_out(tmp_path: Path, qos: int) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-3.1.2-24, MQTT-3.1.2-25
        await retain(one, {"a": b"1", "b": b"x" * 200, "c": b"3"})
        subscriber = await one.client("s", found=((Prop.MAXIMUM_PACKET_SIZE, 100),))
        await subscriber.subscribe(("#", qos))
        assert payloads(await subscriber.messages(2)) == [b"1", b"3"]
        await subscriber.silent()
        assert one.adapter.node.counters.too_large == 1


@pytest.mark.parametrize("qos", [1, 2])
async def test_the_rest_of_a_write_comes_again(tmp_path: Path, qos: int) -> None:
    """MQTT-4.4.0-1: what was acknowledged does not, and identifiers stay."""
    async with restartable_node(tmp_path) as one:
        await retain(one, {f"r/{at}": b"%d" % at for at in range(6)}, qos=2)
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("r/+", qos))
        first = await subscriber.messages(6)
        settled = (0, 3) if qos == 1 else ()
        for at in settled:
            await subscriber.acknowledge(first[at])
        await subscriber.silent()
        await one.restart()
        back = await one.client("s", kept=True)
        left = [x for at, x in enumerate(first) if at not in settled]
        again = await back.messages(len(left))
        assert [(x.packet_id, x.payload) for x in again] == [
            (x.packet_id, x.payload) for x in left
        ]
        assert all(x.dup for x in again)
        await back.silent()


async def test_more_than_a_page_comes_in_order(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        publisher.send(
            *[
                wire.publish(f"r/{at:04}", b"%d" % at, qos=0, retain=True, version=V5)
                for at in range(1_200)
            ]
        )
        await publisher.silent()
        subscriber = await one.client("s")
        await subscriber.subscribe(("#", 1))
        assert payloads(await subscriber.messages(1_200)) == numbered(1_200)
