"""Publishers above their quota: acknowledged all the same, and then not read for a while."""

import asyncio
from pathlib import Path

import pytest

from features.quota.model import Entity, QuotaKey
from tests.adapters.mqtt.live import Client, Live, running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V5, Kind
from tests.support.waiting import until

PRODUCED = QuotaKey.PRODUCER_BYTE_RATE
PAYLOAD = bytes(10_000)
V3_1_1 = 4


async def publish(client: Client, packet_id: int, payload: bytes = PAYLOAD) -> None:
    client.send(wire.publish("t", payload, qos=1, packet_id=packet_id, version=client.version))
    await client.receive(Kind.PUBACK)


def holds(live: Live) -> set[str]:
    return set(live.connection()._holds)


@pytest.mark.parametrize("version", [V3_1_1, V5])
async def test_a_publisher_above_its_quota_is_not_read(tmp_path: Path, version: int) -> None:
    async with running(tmp_path) as live:
        await live.kernel.quotas.change(Entity(None, "c"), {PRODUCED: 1_000.0})
        client = await live.connected("c", version=version)
        await publish(client, 1)
        assert holds(live) == {"quota"}
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        client.send(wire.PINGREQ)
        await client.receive(Kind.PINGRESP)
        assert loop.time() - began_s >= 0.03
        assert holds(live) == set()


async def test_other_publishers_are_read(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.kernel.quotas.change(Entity("ann", "c"), {PRODUCED: 1.0})
        client = await live.connected("c")
        await publish(client, 1)
        assert holds(live) == set()


async def test_a_publisher_of_single_messages_gets_a_quota_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.connected("c")
        for number in range(1, 6):
            await publish(client, number, b"small")
        assert live.connection().publisher is not None
        await live.kernel.quotas.change(Entity(None, "c"), {PRODUCED: 10.0})
        await publish(client, 7, b"small")  # 64 bytes more of each message are counted
        assert live.connection().publisher is None
        await publish(client, 8, b"small")
        assert holds(live) == {"quota"}
        assert live.kernel.quotas.counts.count[PRODUCED] == 1


async def test_without_a_quota_of_its_own_a_publisher_keeps_its_fast_path(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        await live.kernel.quotas.change(Entity(None, "another"), {PRODUCED: 10.0})
        client = await live.connected("c")
        for number in range(1, 6):
            await publish(client, number, b"small")
        assert live.connection().publisher is not None


async def test_a_muted_publisher_that_goes_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.kernel.quotas.change(Entity(None, "c"), {PRODUCED: 1.0})
        client = await live.connected("c")
        await publish(client, 1)
        connection = live.connection()
        mute = connection.inbound._mute
        assert mute is not None
        assert mute._timer is not None
        connection.close()
        assert await client.next() is None
        await until(lambda: connection.is_lost)
        assert mute._timer is None
