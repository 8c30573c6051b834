"""Records that are odd, or meet a bug of ours: they cost nobody else a message."""

from pathlib import Path

import pytest

from adapters.mqtt.delivery.distributor import Distributor
from adapters.mqtt.reading import catch_up
from adapters.mqtt.reading.catch_up import CatchUp
from adapters.mqtt.wire import PublishRun
from features.expiry import REMAINING_S_MAX
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, Kind, Prop

FAR = (b"9999999999999", b"999999999999999999")  # the year 2286, and as far as a header says
RETAINED = ("mqtt.retain", b"1")


async def behind(one: RestartableNode, *names: str) -> None:
    """Let sessions be made and left, that what comes now is caught up with."""
    for name in names:
        client = await one.client(name, kept=True)
        await client.subscribe(("#", 1))
        await client.leave()


def produce(one: RestartableNode, deadline: bytes, *, number: int) -> None:
    """Append a record that is far from expiring, and one that never does behind it."""
    records = [(b"far/%d" % number, b"far"), (b"near", b"near")]
    headers = [("expires-at", deadline), RETAINED, ("mqtt.qos", b"1")]
    one.produce(records[:1], headers=headers)
    one.produce(records[1:], headers=[("mqtt.qos", b"1")])


@pytest.mark.parametrize("deadline", FAR)
async def test_a_deadline_further_than_mqtt_counts_is_the_furthest_it_can_say(
    tmp_path: Path, deadline: bytes
) -> None:
    async with restartable_node(tmp_path) as one:
        await behind(one, "away", "other")
        live = [await one.client("live"), await one.client("old", version=V3_1_1)]
        shared = await one.client("shared")
        for client in live:
            await client.subscribe(("#", 1))
        await shared.subscribe(("$share/g/far/+", 1))

        produce(one, deadline, number=1)

        await one.delivered()
        for client in live:
            found = await client.take(2)
            assert payloads(found) == [b"far", b"near"]
            assert says_furthest(client, found[0])
        assert says_furthest(shared, *await shared.take(1))
        for name in ("away", "other"):  # one after the other, by the log
            back = await one.client(name, kept=True)
            found = await back.take(2)
            assert payloads(found) == [b"far", b"near"]
            assert says_furthest(back, found[0])
        late = await one.client("late")
        late.send(wire.subscribe(1, [("far/#", 1)]))
        await late.receive(Kind.SUBACK)
        (kept,) = await late.take(1)
        assert kept.retain
        assert says_furthest(late, kept)


def says_furthest(client: Client, found: wire.Received) -> bool:
    wanted = None if client.version == V3_1_1 else REMAINING_S_MAX
    return found.value(Prop.MESSAGE_EXPIRY) == wanted


async def test_a_bug_that_one_message_meets_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Distributor.deliver

    def failing(self: Distributor, run: PublishRun, feed: object = None) -> None:
        if run.topic == b"bad":
            raise ZeroDivisionError
        deliver(self, run, feed)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(Distributor, "deliver", failing)
    async with restartable_node(tmp_path) as one:
        client = await one.client("c")
        await client.subscribe(("#", 1))
        one.produce([(b"good", b"1"), (b"bad", b"2"), (b"good", b"3")])
        one.produce([(b"good", b"4")])
        await one.delivered()
        assert payloads(await client.take(3)) == [b"1", b"3", b"4"]
        await client.silent()
        assert dict(one.adapter.node.feeds.skipped) == {"bug": 1}


async def test_a_bug_while_one_catches_up_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "RETRY_S", 0.01)
    step = CatchUp._step
    bugs = [ZeroDivisionError(), ZeroDivisionError()]

    async def failing(self: CatchUp, follower: object) -> None:
        if bugs:
            raise bugs.pop()
        await step(self, follower)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(CatchUp, "_step", failing)
    async with restartable_node(tmp_path) as one:
        await behind(one, "away", "other")
        one.produce([(b"t", b"1"), (b"t", b"2")], headers=[("mqtt.qos", b"1")])
        clients = [await one.client(name, kept=True) for name in ("away", "other")]
        for client in clients:
            assert payloads(await client.take(2)) == [b"1", b"2"]
        assert not bugs
