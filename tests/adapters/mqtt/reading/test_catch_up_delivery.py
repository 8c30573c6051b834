"""Live, behind, caught up: every message once and in order, whatever the windows are."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from adapters.mqtt.reading import catch_up
from adapters.mqtt.reading import feed as reading_feed
from gateway.errors import StorageUnavailable
from gateway.model import Buffer
from tests.adapters.mqtt.restartable_node import numbered, payloads, restartable_node
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop

SMALL = ((Prop.RECEIVE_MAXIMUM, 7),)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("kept", [False, True])
async def test_a_small_window_gets_all_once_and_in_order(
    tmp_path: Path, qos: int, *, kept: bool
) -> None:  # MQTT-4.6.0-6, MQTT-3.3.4-9
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=kept, found=SMALL)
        await subscriber.subscribe(("a/+", 2))
        publisher = await one.client("p")
        await publisher.publish("a/1", numbered(40), qos=qos)
        await publisher.publish("a/2", numbered(40), qos=qos)
        await publisher.publish("a/1", numbered(40, start=40), qos=1)
        first = await subscriber.messages(7)
        await subscriber.silent()
        for found in first:
            await subscriber.acknowledge(found)
        if qos == 2:
            for found in first:
                assert (await subscriber.receive(Kind.PUBREL)).packet_id == found.packet_id
            for found in first:
                subscriber.send(wire.ack(Kind.PUBCOMP, found.packet_id))
        rest = await subscriber.take(120 - 7)
        every = first + rest
        by_topic = {
            topic: [one.payload for one in every if one.topic == topic and one.qos == qos]
            for topic in ("a/1", "a/2")
        }
        assert by_topic["a/2"] == numbered(40)
        assert by_topic["a/1"][:40] == numbered(40)
        assert len(every) == 120
        await subscriber.silent()
        await publisher.publish("a/1", [b"live"])
        assert payloads(await subscriber.take(1)) == [b"live"]


@pytest.mark.parametrize(("count", "size"), [(700, 0), (40, 5_000)])
async def test_a_run_that_was_cut_into_batches_is_caught_up_with(
    tmp_path: Path, count: int, size: int
) -> None:
    async with restartable_node(tmp_path, mqtt={"session": {"receive_max": 2_000}}) as one:
        subscriber = await one.client("s", found=SMALL)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(count, size=size))
        await publisher.publish("t", numbered(3, start=count, size=size))
        found = await subscriber.take(count + 3)
        assert payloads(found) == numbered(count + 3, size=size)
        await subscriber.silent()


async def test_a_cut_run_of_which_only_a_part_is_remembered_comes_once(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt={"session": {"receive_max": 2_000}}) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        await subscriber.leave()
        watcher = await one.client("w")
        await watcher.subscribe(("#", 0))  # while nobody is there nothing is remembered
        publisher = await one.client("p")
        await publisher.publish("t", numbered(700))
        await watcher.messages(700)
        await one.delivered()
        [feed] = one.adapter.node.feeds
        assert len(feed._recent) >= 3
        feed._recent.popitem(last=False)
        back = await one.client("s", kept=True)
        assert payloads(await back.take(700)) == numbered(700)
        await back.silent()


@pytest.mark.parametrize("compressed", [False, True])
async def test_batches_by_kafka_come_in_between(tmp_path: Path, *, compressed: bool) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", found=SMALL)
        await subscriber.subscribe(("t", 2), ("u", 2))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(20))
        one.produce(
            [(b"t", b"%d" % at) for at in range(20, 30)] + [(b"u", b"u")], compressed=compressed
        )
        await publisher.publish("t", numbered(20, start=30))
        found = await subscriber.take(51)
        assert [x.payload for x in found if x.topic == "t"] == numbered(50)
        assert [x.payload for x in found if x.topic == "u"] == [b"u"]
        await subscriber.silent()


async def test_several_topics_of_the_log(tmp_path: Path) -> None:
    routes = [{"filter": "x/#", "topic": "xs", "partitions": 3}]
    async with restartable_node(tmp_path, mqtt={"routes": routes}) as one:
        subscriber = await one.client("s", kept=True, found=SMALL)
        await subscriber.subscribe(("#", 1))
        publisher = await one.client("p")
        for at in range(12):
            await publisher.publish(f"x/{at % 4}", [b"%d" % at])
            await publisher.publish("y", [b"%d" % at])
        found = await subscriber.take(24)
        for topic, wanted in [("y", numbered(12)), ("x/1", [b"1", b"5", b"9"])]:
            assert [x.payload for x in found if x.topic == topic] == wanted
        await subscriber.silent()


async def test_a_session_that_was_away_gets_what_it_missed(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        await subscriber.leave()
        publisher = await one.client("p")
        await publisher.publish("t", numbered(30))
        await publisher.publish("t", [b"at most once"], qos=0)
        await publisher.silent()
        back = await one.client("s", kept=True)
        assert back.session_present
        assert payloads(await back.take(30)) == numbered(30)
        await back.silent()


async def test_a_new_subscription_sees_no_history(tmp_path: Path) -> None:  # MQTT 5.0, 4.6
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True, found=SMALL)
        await subscriber.subscribe(("a", 1))
        publisher = await one.client("p")
        await publisher.publish("b", numbered(5))
        await publisher.publish("a", numbered(20))  # it is behind now
        await publisher.publish("b", numbered(5))
        first = await subscriber.messages(7)
        await subscriber.subscribe(("b", 1))
        await publisher.publish("b", [b"new"])
        for found in first:
            await subscriber.acknowledge(found)
        rest = await subscriber.take(14)
        assert [x.payload for x in first + rest if x.topic == "a"] == numbered(20)
        assert [x.payload for x in rest if x.topic == "b"] == [b"new"]


async def test_a_new_overlapping_subscription_does_not_change_what_is_older(
    tmp_path: Path,
) -> None:  # MQTT-3.3.4-3
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True, found=SMALL)
        await subscriber.subscribe(("a", 1), found=[(Prop.SUBSCRIPTION_ID, 1)])
        publisher = await one.client("p")
        await publisher.publish("a", numbered(10), qos=2)
        first = await subscriber.messages(7)
        await subscriber.subscribe(("+", 2), found=[(Prop.SUBSCRIPTION_ID, 2)])
        await publisher.publish("a", numbered(5, start=10), qos=2)
        for found in first:
            await subscriber.acknowledge(found)
        every = first + await subscriber.take(8)
        assert payloads(every) == numbered(15)
        assert [x.qos for x in every] == [1] * 10 + [2] * 5
        identifiers = [x.values(Prop.SUBSCRIPTION_ID) for x in every]
        assert identifiers == [[1]] * 10 + [[1, 2]] * 5


async def test_subscribing_again_keeps_the_start(tmp_path: Path) -> None:  # MQTT-3.8.4-4
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True, found=SMALL)
        await subscriber.subscribe(("a", 1))
        publisher = await one.client("p")
        await publisher.publish("a", numbered(20))
        first = await subscriber.messages(7)
        await subscriber.subscribe(("a", 1 | 0x20))  # retain handling 2
        for found in first:
            await subscriber.acknowledge(found)
        assert payloads(first + await subscriber.take(13)) == numbered(20)


async def test_what_is_new_does_not_come_after_unsubscribe(
    tmp_path: Path,
) -> None:  # MQTT-3.10.4-2
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True, found=SMALL)
        await subscriber.subscribe(("a", 1), ("b", 1))
        publisher = await one.client("p")
        await publisher.publish("a", numbered(20))
        first = await subscriber.messages(7)
        await subscriber.unsubscribe("a")
        await publisher.publish("a", [b"new"])
        await publisher.publish("b", [b"b"])
        for found in first:
            await subscriber.acknowledge(found)
        assert payloads(await subscriber.take(14)) == [*numbered(13, start=7), b"b"]
        await subscriber.silent()
        await subscriber.unsubscribe("b")
        await subscriber.subscribe(("b", 1))
        await publisher.publish("b", [b"again"])
        assert payloads(await subscriber.take(1)) == [b"again"]


async def test_overlapping_filters_are_one_delivery_while_behind(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", found=SMALL)
        await subscriber.subscribe(("a/#", 1), found=[(Prop.SUBSCRIPTION_ID, 5)])
        await subscriber.subscribe(("a/+", 2), found=[(Prop.SUBSCRIPTION_ID, 6)])
        publisher = await one.client("p")
        await publisher.publish("a/b", numbered(20), qos=2)
        found = await subscriber.take(20)
        assert payloads(found) == numbered(20)
        assert {x.qos for x in found} == {2}  # MQTT-3.3.4-2
        assert {tuple(x.values(Prop.SUBSCRIPTION_ID)) for x in found} == {(5, 6)}


async def test_no_local_while_behind(tmp_path: Path) -> None:  # MQTT-3.8.3-3
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", found=SMALL)
        await subscriber.subscribe(("a", 1 | 0x04))
        other = await one.client("o")
        await other.publish("a", numbered(10))
        first = await subscriber.messages(7)
        subscriber.send(
            *[wire.publish("a", b"own", qos=1, packet_id=100 + at) for at in range(5)]
        )
        for _ in range(5):
            await subscriber.receive(Kind.PUBACK)
        await other.publish("a", numbered(10, start=10))
        for found in first:
            await subscriber.acknowledge(found)
        assert payloads(first + await subscriber.take(13)) == numbered(20)
        await subscriber.silent()


async def test_what_expires_while_behind_does_not_come(tmp_path: Path) -> None:  # MQTT-3.3.2-5
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True, found=SMALL)
        await subscriber.subscribe(("a", 1))
        publisher = await one.client("p")
        await publisher.publish("a", numbered(7))
        for at, seconds in enumerate((5, 50, 5)):
            expiry = [(Prop.MESSAGE_EXPIRY, seconds)]
            await publisher.publish("a", [b"x%d" % at], found=expiry)
        one.clock.advance(10_000)
        found = await subscriber.take(8)
        assert payloads(found) == [*numbered(7), b"x1"]
        assert found[-1].value(Prop.MESSAGE_EXPIRY) == 40  # MQTT-3.3.2-6
        await subscriber.silent()


async def test_a_log_that_cannot_be_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        await subscriber.leave()
        publisher = await one.client("p")
        await publisher.publish("t", numbered(3))
        [feed] = one.adapter.node.feeds
        read_batches = feed.read_batches
        failures = [StorageUnavailable("the disk is slow to wake up")]

        async def fail_once(offset: int, *, bytes_max: int, end: int) -> Sequence[Buffer]:
            if failures:
                raise failures.pop()
            return await read_batches(offset, bytes_max=bytes_max, end=end)

        monkeypatch.setattr(feed, "read_batches", fail_once)
        monkeypatch.setattr(catch_up, "RETRY_S", 0.0)
        back = await one.client("s", kept=True)
        assert payloads(await back.take(3)) == numbered(3)
        assert not failures


async def test_a_feed_whose_tail_failed_follows_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s")
        await subscriber.subscribe(("t", 1))
        [feed] = one.adapter.node.feeds
        monkeypatch.setattr(reading_feed, "RETRY_S", 0.0)
        tail = feed._tail
        assert tail is not None
        tail._fail(feed, StorageUnavailable("a read failed"))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(3))
        assert payloads(await subscriber.take(3)) == numbered(3)
