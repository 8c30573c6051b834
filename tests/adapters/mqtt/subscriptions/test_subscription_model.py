"""A session that subscribes, unsubscribes, comes and goes, and whose node stops or dies.

What was published while a subscription of QoS 1 or 2 matched comes once, with the QoS of that
moment, however small the window is; nothing else comes at QoS 1 or 2.
"""

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.adapters.mqtt.restartable_node import (
    DEADLINE_S,
    Client,
    RestartableNode,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop, Received

FILTERS = ["t", "+", "#", "t/#"]  # all of them match
STEPS = 60
OFTEN = ["publish"] * 4 + ["acknowledge"] * 3 + ["subscribe"] * 2
SELDOM = ["unsubscribe", "reconnect", "stop", "crash"]


class Subscriber:
    """A client that notes the QoS at which each message came, and again when it is no DUP."""

    def __init__(self, one: RestartableNode, random: Random) -> None:
        self._one = one
        self._random = random
        self._client: Client | None = None
        self._open: list[Received] = []
        self.got: dict[bytes, list[int]] = {}
        self.subscriptions: dict[str, int] = {}

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def connect(self) -> None:
        window = self._random.choice([1, 2, 3, 100])
        found = ((Prop.RECEIVE_MAXIMUM, window),)
        self._client = await self._one.client("s", kept=True, found=found)
        self._open = []

    async def reconnect(self) -> None:
        if self._random.random() < 0.5:  # else it is a takeover
            await self.client.drop()
            await self._one.gone("s")
        await self.connect()

    async def wait(self, kind: Kind) -> Received:
        while (found := await self.client.next()) is not None and found.kind is not kind:
            if found.kind is Kind.PUBREL:
                self.client.send(wire.ack(Kind.PUBCOMP, found.packet_id))
                continue
            assert found.kind is Kind.PUBLISH
            self._open.append(found)
            if found.qos and not (found.dup and found.payload in self.got):
                self.got.setdefault(found.payload, []).append(found.qos)
        assert found is not None
        return found

    async def ping(self) -> None:
        self.client.send(wire.PINGREQ)
        await self.wait(Kind.PINGRESP)

    async def acknowledge(self, count: int) -> None:
        for found in self._open[:count]:
            await self.client.acknowledge(found)
        del self._open[:count]

    async def acknowledge_some(self) -> None:
        await self.acknowledge(self._random.randint(0, len(self._open)))

    async def subscribe(self) -> None:
        name, qos = self._random.choice(FILTERS), self._random.choice([0, 1, 1, 2, 2])
        self.client.send(wire.subscribe(self.client.next_id(), [(name, qos)]))
        assert (await self.wait(Kind.SUBACK)).codes == [qos]
        self.subscriptions[name] = qos

    async def unsubscribe(self) -> None:
        name = self._random.choice(FILTERS)
        self.client.send(wire.unsubscribe(self.client.next_id(), [name]))
        await self.wait(Kind.UNSUBACK)
        self.subscriptions.pop(name, None)

    async def take_all(self, wanted: int) -> None:
        """Acknowledge until so many have come, and what comes behind them."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.got) < wanted or self._open:
                await self.acknowledge(len(self._open))
                await self.ping()
        await self.ping()


@pytest.mark.parametrize("seed", range(8))
async def test_what_a_subscription_matched_comes_once_whatever_becomes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:  # MQTT-3.8.4-4, MQTT-3.10.4-3, MQTT-4.1.0-1
    random = Random(seed)
    async with restartable_node(tmp_path) as one:
        if seed % 2:
            monkeypatch.setattr(one.adapter.node.feeds._pace, "_slice_s", 0.0)
        subscriber, publisher = Subscriber(one, random), await one.client("p")
        await subscriber.connect()
        wanted: dict[bytes, int] = {}
        count = 0
        for _ in range(STEPS):
            match random.choice([*OFTEN, *OFTEN, *SELDOM]):
                case "publish":
                    qos = random.choice([1, 2])
                    payloads = [b"%d" % (count + at) for at in range(random.randint(1, 4))]
                    count += len(payloads)
                    await publisher.publish("t", payloads, qos=qos)
                    granted = max(subscriber.subscriptions.values(), default=0)
                    if granted:
                        wanted |= dict.fromkeys(payloads, min(qos, granted))
                case "acknowledge":
                    await subscriber.acknowledge_some()
                case "subscribe":
                    await subscriber.subscribe()
                case "unsubscribe":
                    await subscriber.unsubscribe()
                case "reconnect":
                    await subscriber.reconnect()
                case end:
                    await subscriber.ping()
                    await one.restart(crash=end == "crash")
                    publisher = await one.client("p")
                    await subscriber.connect()
        await subscriber.take_all(len(wanted))
        assert subscriber.got == {payload: [qos] for payload, qos in wanted.items()}
