"""A one-in-flight client's connection is counted, watched and closed as any other."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import websockets

from adapters.mqtt.connection.connection import MqttConnection
from adapters.mqtt.publishing.one_in_flight_publisher import OneInFlightPublisher
from gateway.records.codec import encode_batch
from tests.adapters.mqtt.publishing.test_one_in_flight_batches import (
    has_one_in_flight,
    one_in_flight_client,
    server_side,
    stored,
)
from tests.adapters.mqtt.restartable_node import (
    RestartableNode,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind
from tests.support.waiting import until


def counted(one: RestartableNode, connection: MqttConnection) -> tuple[int, ...]:
    counters = one.adapter.node.counters
    return (
        connection.bytes_received,
        connection.bytes_sent,
        connection.listener.socket_writes,
        counters.publish_received,
        counters.messages_received,
        counters.messages_sent,
    )


async def grown_both_ways(
    one: RestartableNode, connection: MqttConnection, exchange: Callable[[], Awaitable[None]]
) -> list[tuple[int, ...]]:
    """Return what is counted of one message alone, and of one after that has left the way."""
    grown = []
    for _ in range(2):
        before = counted(one, connection)
        await exchange()
        await until(lambda: connection.publisher is None or connection.publisher.data is None)
        after = counted(one, connection)
        grown.append(tuple(b - a for a, b in zip(before, after, strict=True)))
        assert connection.publisher is not None
        connection.publisher.leave()
    return grown


async def test_what_goes_alone_is_counted_as_what_does_not(tmp_path: Path) -> None:
    packet = wire.publish("t", b"third", qos=1, packet_id=3)
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        connection = server_side(one, "p")

        async def exchange() -> None:
            client.send(packet)
            await client.receive(Kind.PUBACK)

        grown = await grown_both_ways(one, connection, exchange)
        assert grown[0] == grown[1] == (len(packet), 4, 1, 1, 1, 1)


async def test_a_lone_message_is_a_sign_of_life(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        connection = server_side(one, "p")
        connection.listener.now_s += 10
        await client.publish("t", [b"third"])
        assert connection.last_received_s == connection.listener.now_s


async def test_a_bug_met_by_one_while_reading_closes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path) as one:
        unlucky, other = (
            await one_in_flight_client(one, "u"),
            await one_in_flight_client(one, "o"),
        )
        node = one.adapter.node

        def bug(*_: Any) -> bool:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(node.one_in_flight, "_is_saturated", bug)
            unlucky.send(wire.publish("t", b"3", qos=1, packet_id=3))
            await unlucky.ended_with()
        assert one.adapter.listener.faults["bug"] == 1
        await other.publish("t", [b"4"])


async def test_a_bug_met_by_one_answer_keeps_back_no_other(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        clients = [await one_in_flight_client(one, name) for name in ("1", "2", "3")]
        one.live.storage.held = True
        for client, name in zip(clients, ("1", "2", "3"), strict=True):
            client.send(wire.publish("t", b"3", qos=1, packet_id=3))
            await until(lambda name=name: has_one_in_flight(one, name))  # type: ignore[misc]

        def bug(_: bytes) -> None:
            raise ZeroDivisionError

        unlucky = server_side(one, "1").publisher
        assert unlucky is not None
        unlucky.write = bug
        one.live.storage.release()
        assert [(await client.receive(Kind.PUBACK)).packet_id for client in clients[1:]] == [
            3,
            3,
        ]
        await clients[0].ended_with()
        assert one.adapter.listener.faults["bug"] == 1


async def test_a_connection_may_end_with_a_message_on_its_way(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client, other = (
            await one_in_flight_client(one, "p"),
            await one_in_flight_client(one, "o"),
        )
        one.live.storage.held = True
        for each, name in ((client, "p"), (other, "o")):
            each.send(wire.publish("t", b"third", qos=1, packet_id=3))
            await until(lambda name=name: has_one_in_flight(one, name))  # type: ignore[misc]
        connection = server_side(one, "p")
        connection.close()
        one.live.storage.release()  # before the transport has told that it is closed
        assert (await other.receive(Kind.PUBACK)).packet_id == 3
        await until(lambda: connection.transport is None)
        assert connection.publisher is None
        assert one.adapter.listener.faults["bug"] == 0
        assert [value for _, value in stored(one)[4:]] == [b"third", b"third"]


async def test_bytes_in_frames_are_counted_once(tmp_path: Path) -> None:
    packet = wire.publish("t", b"x" * 50, qos=1, packet_id=3, version=4)
    async with restartable_node(tmp_path) as one:
        [listener] = [each for each in one.adapter.listeners if each.name == "mqtt-ws"]
        url = f"ws://127.0.0.1:{listener.port}/mqtt"
        async with websockets.connect(url, subprotocols=["mqtt"], compression=None) as socket:  # type: ignore[list-item]  # plain names

            async def exchange() -> None:
                await socket.send(packet)
                await socket.recv()

            await socket.send(wire.connect("w", version=4))
            await socket.recv()
            for _ in range(2):
                await exchange()
            grown = await grown_both_ways(one, server_side(one, "w"), exchange)
        frame_bytes = 2 + 4 + len(packet)  # head and mask
        assert grown[0] == grown[1] == (frame_bytes, 2 + 4, 1, 1, 1, 1)


async def test_nothing_goes_alone_before_the_last_answer_is_sent(
    tmp_path: Path,
) -> None:  # MQTT-4.6.0-2
    """The storage tells a group in the turn in which one more packet is read."""
    async with restartable_node(tmp_path) as one:
        client, other = await one_in_flight_client(one, "p"), await one.client("o")
        connection, beside = server_side(one, "p"), server_side(one, "o")
        storage, broker = one.live.storage, one.kernel.broker
        client.send(wire.PINGREQ)
        await client.receive(Kind.PINGRESP)

        def append(done: Any) -> None:
            batch = encode_batch([(one.clock.unix_ms(), b"t", b"k", ())])
            broker.append([broker.prepare(one.partition(), batch)], done)  # type: ignore[list-item]  # no duplicate

        def turn() -> None:
            beside.data_received(wire.publish("u", b".", qos=1, packet_id=1))
            storage.release()
            assert connection.out_bytes, "the first answer is queued"
            client.send(wire.publish("t", b"two", qos=1, packet_id=102))

        storage.held = True
        append(lambda _: append(lambda _: None))
        client.send(wire.publish("t", b"one", qos=1, packet_id=101))
        await until(lambda: connection.publisher is not None and len(storage._kept_back) == 2)
        asyncio.get_running_loop().call_soon(turn)
        assert [(await client.receive(Kind.PUBACK)).packet_id for _ in range(2)] == [101, 102]
        assert (await other.receive(Kind.PUBACK)).packet_id == 1


async def test_who_has_left_the_way_is_freed_at_once(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one_in_flight_client(one)
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                client.send(wire.PINGREQ)
                await client.receive(Kind.PINGRESP)
                await client.publish("t", [b"x"])
            await client.publish("t", [b"x"])
            found = [
                each for each in gc.get_objects() if isinstance(each, OneInFlightPublisher)
            ]
        finally:
            gc.enable()
        assert len(found) == 1
