"""Sessions: taken over, begun anew, over; and what happens to the log under them."""

from pathlib import Path

from adapters.mqtt.sessions.client_session import ClientSession
from gateway.errors import StorageUnavailable
from gateway.storage import OnDone
from tests.adapters.mqtt.restartable_node import (
    numbered,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Prop
from tests.support.waiting import until

SMALL = ((Prop.RECEIVE_MAXIMUM, 7),)


async def test_a_session_is_taken_over_with_what_is_on_its_way(
    tmp_path: Path,
) -> None:  # MQTT-3.1.4-3
    async with restartable_node(tmp_path) as one:
        old = await one.client("s", kept=True, found=SMALL)
        await old.subscribe(("t", 1))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(20))
        first = await old.messages(7)
        new = await one.client("s", kept=True)
        assert (await old.ended_with())[-1] == (Kind.DISCONNECT, 0x8E)
        found = await new.take(20)
        assert payloads(found) == numbered(20)
        assert [x.packet_id for x in found[:7]] == [x.packet_id for x in first]
        assert one.adapter.node.sessions.connected == 2


async def test_clean_start_begins_anew(tmp_path: Path) -> None:  # MQTT-3.1.2-4
    async with restartable_node(tmp_path) as one:
        old = await one.client("s", kept=True)
        await old.subscribe(("t", 1))
        await old.leave()
        publisher = await one.client("p")
        await publisher.publish("t", numbered(3))
        new = await one.client("s", found=[(Prop.SESSION_EXPIRY, 60)])
        assert not new.session_present
        await new.silent()
        await publisher.publish("t", [b"x"])
        await new.silent()
        await one.restart(crash=True)
        session = one.session("s")
        assert session is not None
        assert not session.subscriptions


async def test_a_session_ends_with_its_time(tmp_path: Path) -> None:  # MQTT-3.1.2-23
    async with restartable_node(tmp_path) as one:
        old = await one.client("s", clean=False, found=[(Prop.SESSION_EXPIRY, 60)])
        await old.subscribe(("t", 1))
        await old.leave()
        await one.gone("s")
        one.clock.step_unix(10**9)  # somebody sets the wall clock
        sessions = one.adapter.node.sessions
        sessions.sweep(one.clock.monotonic_ms())
        assert one.session("s") is not None
        one.clock.advance(60_000)
        sessions.sweep(one.clock.monotonic_ms())
        assert one.session("s") is None
        await one.restart()
        assert one.session("s") is None


async def test_the_end_of_a_session_with_a_will_leaves_nothing_behind(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:  # MQTT-3.1.2-8
        watcher = await one.client("w")
        await watcher.subscribe(("will", 1))
        will = wire.WillMessage("will", b"gone", qos=1, properties=[(Prop.WILL_DELAY, 900)])
        old = await one.client("s", clean=False, will=will, found=[(Prop.SESSION_EXPIRY, 60)])
        await old.drop()
        await one.gone("s")
        await watcher.silent()
        one.clock.advance(60_000)
        sessions = one.adapter.node.sessions
        sessions.sweep(one.clock.monotonic_ms())
        assert payloads(await watcher.take(1)) == [b"gone"]
        await watcher.silent()
        keys = one.adapter.node.context.store.stream.values
        assert not [key for key in keys if key.startswith(b"\x01s\0")]


async def test_backlog_max_bounds_how_far_back_a_session_reads(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt={"session": {"backlog_max": 10}}) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        await subscriber.leave()
        await one.gone("s")
        publisher = await one.client("p")
        await publisher.publish("t", numbered(30))
        await one.delivered()
        back = await one.client("s", kept=True)
        assert payloads(await back.take(10)) == numbered(10, start=20)
        assert one.adapter.node.counters.backlog_skipped == 20
        await back.silent()


async def test_retention_that_has_passed_a_session_is_skipped(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(10))
        on_its_way = await subscriber.messages(10)
        await subscriber.drop()
        await one.gone("s")
        for at in range(10, 30):
            await publisher.publish("t", [b"%d" % at])
        await one.delivered()
        partition = one.partition()
        one.kernel.broker.truncate_before(partition, 20, lambda _error: None)
        await until(lambda: partition.log_start_offset == 20)
        back = await one.client("s", kept=True)
        assert payloads(await back.take(10)) == numbered(10, start=20)
        assert len(on_its_way) == 10  # what was cut off counts as acknowledged
        session = one.session("s")
        assert session is not None
        await back.silent()
        assert session.outbox.count == 0


async def test_a_topic_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        subscriber = await one.client("s", kept=True, found=SMALL)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        await publisher.publish("t", numbered(20))
        await subscriber.messages(7)
        old = one.partition()
        await one.kernel.topics.delete(old.topic.name)
        node = one.adapter.node
        await until(
            lambda: [feed.partition_id for feed in node.feeds] not in ([], [old.partition_id])
        )
        await publisher.publish("t", [b"new"])
        for at in range(1, 8):
            subscriber.send(wire.ack(Kind.PUBACK, at))
        assert payloads(await subscriber.take(1)) == [b"new"]
        await subscriber.leave()
        await one.gone("s")
        await publisher.publish("t", [b"away"])
        back = await one.client("s", kept=True)
        assert payloads(await back.take(1)) == [b"away"]


async def test_partitions_that_were_added_are_followed(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        online = await one.client("o", kept=True)
        await online.subscribe(("#", 1))
        away = await one.client("s", kept=True)
        await away.subscribe(("#", 1))
        await away.leave()
        await one.gone("s")
        await one.kernel.topics.add_partitions(one.partition().topic.name, 4)
        publisher = await one.client("p")
        for at in range(12):
            await publisher.publish(f"t/{at}", [b"%d" % at])
        assert sorted(payloads(await online.take(12)), key=int) == numbered(12)
        back = await one.client("s", kept=True)
        assert sorted(payloads(await back.take(12)), key=int) == numbered(12)
        await back.silent()


async def test_a_session_store_that_fails_refuses_and_keeps_nothing(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        sessions = one.adapter.node.sessions
        store = one.adapter.node.context.store

        def put_state(_session: ClientSession, on_done: OnDone | None = None) -> None:
            if on_done is not None:
                on_done(StorageUnavailable("the disk is full"))

        real, store.put_state = store.put_state, put_state  # type: ignore[assignment,method-assign]
        client = await one.live.client()
        answer = await client.connect("s", found=[(Prop.SESSION_EXPIRY, 60)])
        assert answer.code >= 0x80
        await one.gone("s")
        assert sessions.connected == 0
        store.put_state = real  # type: ignore[method-assign]
        await one.client("s", kept=True)
        assert sessions.connected == 1
