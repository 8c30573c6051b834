"""One client's publishes whose topics take turns: one append, and what each of them promises."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.mqtt.publishing.publishing import Publishing
from adapters.mqtt.wire import MixedTopicPublishes
from gateway.coalescer import BATCH_RECORDS_MAX
from gateway.model import Record
from gateway.records.codec import decode_batch
from tests.adapters.mqtt.disk_faults import full_disk
from tests.adapters.mqtt.publishing.test_one_in_flight_batches import server_side
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop
from tests.support.waiting import until

TOPICS: Final = [f"t/{number % 7}" for number in range(40)]
ROUTED: Final = {"routes": [{"filter": "t/+", "topic": "spread", "partitions": 4}]}
FOUR: Final = {"default_route": {"filter": "#", "topic": "mqtt", "partitions": 4}}
KEYED: Final = {"routes": [{"filter": "t/+", "topic": "keyed", "key": "{1}"}]}


async def records_of(
    one: RestartableNode, topic: str = "mqtt", number: int = 0
) -> list[Record]:
    partition = one.partition(topic, number)
    batches = one.kernel.broker.read(partition, 0, bytes_max=10_000_000)
    assert batches is not None
    return [record for batch in batches for record in decode_batch(batch)]


def bytes_of(
    topics: Sequence[str],
    bodies: Sequence[bytes] | None = None,
    *,
    qos: int = 1,
    **options: Any,
) -> bytes:
    """Return packets; identifiers count from 1, payloads are numbers unless given."""
    bodies = bodies or [b"%d" % number for number in range(len(topics))]
    columns = enumerate(zip(topics, bodies, strict=True), start=1)
    return b"".join(
        wire.publish(topic, body, qos=qos, packet_id=number, **options)
        for number, (topic, body) in columns
    )


async def acknowledged(client: Client, count: int) -> list[int]:
    """Return the codes of PUBACKs, which have to come in order."""
    answers = [await client.receive(Kind.PUBACK) for _ in range(count)]
    assert [one.packet_id for one in answers] == list(range(1, count + 1))
    return [one.code for one in answers]


def on_its_way(one: RestartableNode, name: str = "p") -> list[type]:
    return [type(found.run) for found in server_side(one, name).inbound._in_turn]


@pytest.mark.parametrize("version", [V3_1_1, V5])
async def test_nothing_is_acknowledged_before_the_log_has_it(
    tmp_path: Path, version: int
) -> None:  # MQTT-4.3.2-2, MQTT-4.6.0-2
    async with restartable_node(tmp_path) as one:
        client = await one.client("p", version=version)
        one.live.storage.held = True
        client.send(bytes_of(TOPICS, version=version))
        await until(lambda: one.partition().log_end_offset == len(TOPICS))
        assert on_its_way(one) == [MixedTopicPublishes]
        connection = server_side(one, "p")
        assert connection.inbound.is_pending
        await client.silent()

        one.live.storage.release()

        assert await acknowledged(client, len(TOPICS)) == [0] * len(TOPICS)
        await until(lambda: not connection.inbound.is_pending)
        assert connection.inbound.unacknowledged_bytes == 0


async def test_runs_and_mixed_topics_are_acknowledged_in_order(
    tmp_path: Path,
) -> None:
    topics = [*"aaabcbdbcccdab"]
    async with restartable_node(tmp_path) as one:
        client = await one.client("p")
        client.send(bytes_of(topics))
        await acknowledged(client, len(topics))
        found = await records_of(one)
        assert [(record.key, record.value) for record in found] == [
            (topic.encode(), b"%d" % number) for number, topic in enumerate(topics)
        ]


@pytest.mark.parametrize(
    "mqtt", [{}, FOUR, ROUTED, KEYED], ids=["plain", "partitions", "routes", "keys"]
)
@pytest.mark.parametrize("found", [(), ((Prop.CONTENT_TYPE, "x"), (Prop.USER, ("a", "b")))])
@pytest.mark.parametrize("qos", [0, 1])
async def test_records_are_those_of_messages_that_came_one_by_one(
    tmp_path: Path, mqtt: dict[str, Any], found: wire.Properties, qos: int
) -> None:
    topics = [*TOPICS, "other", "t/1"]
    stored = []
    for way in ("together", "alone"):
        async with restartable_node(tmp_path / way, mqtt=mqtt) as one:
            client = await one.client("p")
            if way == "together":
                client.send(bytes_of(topics, qos=qos, found=found))
                await acknowledged(client, qos * len(topics))
            else:
                for number, topic in enumerate(topics):
                    await client.publish(topic, [b"%d" % number], qos=qos, found=found)
                    await client.silent()
            await client.silent()
            log_topics = one.adapter.node.routes.log_topics()
            places = [(name, n) for name, to in log_topics for n in range(to.partitions)]
            stored.append(
                [
                    (place, record.offset, record.key, record.value, record.headers)
                    for place in places
                    for record in await records_of(one, *place)
                ]
            )
    assert stored[0] == stored[1]
    assert len(stored[0]) == len(topics)


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("mqtt", [{}, FOUR], ids=["plain", "partitions"])
async def test_subscribers_get_each_message_under_its_topic(
    tmp_path: Path, mqtt: dict[str, Any], qos: int
) -> None:
    topics = [f"t/{number % 60}" for number in range(BATCH_RECORDS_MAX + 100)]
    async with restartable_node(tmp_path, mqtt=mqtt) as one:
        live, own = await one.client("live"), await one.client("p")
        away = await one.client("away", kept=True)
        for client in (live, away):
            await client.subscribe(("#", 1))
        own.send(wire.subscribe(9_000, [("#", 0x04 | 1)]))  # No Local
        await own.receive(Kind.SUBACK)
        await away.drop()
        await one.gone("away")

        own.send(bytes_of(topics, qos=qos, found=((Prop.CONTENT_TYPE, "x"),)))
        await acknowledged(own, qos * len(topics))

        back = await one.client("away", kept=True)
        for client in (live, back)[: 1 + qos]:  # nothing of QoS 0 waits for who is away
            came = await client.take(len(topics))
            wanted = [(topic, b"%d" % number) for number, topic in enumerate(topics)]
            seen = [(found.topic, found.payload) for found in came]
            for topic in set(topics):  # there is no order between the topics of partitions
                assert [one for one in seen if one[0] == topic] == [
                    one for one in wanted if one[0] == topic
                ]
            assert seen == wanted or mqtt is FOUR
            await client.silent()
            assert {found.value(Prop.CONTENT_TYPE) for found in came} == {"x"}
        await own.silent()


@pytest.mark.parametrize("qos", [0, 1])
async def test_the_last_retained_message_of_each_topic_stays(tmp_path: Path, qos: int) -> None:
    topics = ["a", "b", "a", "c", "b", "d"]
    bodies = [b"a1", b"b1", b"a2", b"c1", b"b2", b"d1"]
    async with restartable_node(tmp_path) as one:
        client = await one.client("p")
        found = ((Prop.CONTENT_TYPE, "x"),)
        client.send(bytes_of(topics, bodies, qos=qos, retain=True, found=found))
        await acknowledged(client, qos * len(topics))
        client.send(bytes_of(list("cead"), [b"", b"e1", b"a3", b"d2"], qos=qos, retain=True))
        await acknowledged(client, qos * 4)
        await client.silent()
        for restarts in (False, True):
            if restarts:
                await one.restart(crash=True)
            late = await one.client("late")
            await late.subscribe(("#", 0))
            came = [await late.message() for _ in range(4)]
            assert sorted((one.topic, one.payload) for one in came) == [
                ("a", b"a3"),
                ("b", b"b2"),
                ("d", b"d2"),
                ("e", b"e1"),
            ]
            assert [one.value(Prop.CONTENT_TYPE) for one in came if one.topic == "b"] == ["x"]
            assert all(one.retain for one in came)
            await late.silent()
            await late.leave()


async def test_each_gets_an_answer_of_its_own_where_one_is_refused(tmp_path: Path) -> None:
    acl = [{"effect": "deny", "filter": "no/#"}]
    topics = ["a", "no/a", "b", "$delayed/60/a", "$SYS/a", "$delayed/x/a", "c"]
    async with restartable_node(tmp_path, mqtt={"acl": acl}) as one:
        client = await one.client("p")
        client.send(bytes_of(topics))
        assert await acknowledged(client, 7) == [0, 0x87, 0, 0, 0x90, 0x90, 0]
        assert [record.key for record in await records_of(one)] == [b"a", b"b", b"c"]
        assert server_side(one, "p").inbound._window.count == 0


async def test_qos_0_leaves_before_the_log_has_it_and_once(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client, subscriber = await one.client("p"), await one.client("s")
        await subscriber.subscribe(("#", 0))
        one.live.storage.held = True
        topics = ["a", "b", "a", "c"]
        client.send(bytes_of(topics, qos=0))
        assert [found.topic for found in await subscriber.take(4)] == topics
        assert one.partition().high_watermark == 0
        one.live.storage.release()
        await one.delivered()
        await until(lambda: one.partition().high_watermark == 4)
        await subscriber.silent()
        assert one.adapter.node.counters.publish_received == 4


async def test_what_its_topic_does_not_take_is_refused_alone(tmp_path: Path) -> None:
    bodies = [b"1", bytes(2_000), b"3", b"4"]
    async with restartable_node(tmp_path) as one:
        partition = one.partition()
        await one.kernel.topics.alter_configs(
            partition.topic.name, {"max.message.bytes": "1000"}
        )
        client = await one.client("p")
        client.send(bytes_of(["a", "b", "c", "d"], bodies, retain=True))
        assert await acknowledged(client, 4) == [0, 0x97, 0, 0]
        retained = one.adapter.node.retained
        assert [retained.get(topic) is None for topic in (b"a", b"b", b"c")] == [
            False,
            True,
            False,
        ]


async def test_no_more_topics_are_retained_than_the_bound_says(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt={"retained_max": 3}) as one:
        client = await one.client("p")
        client.send(bytes_of(["a", "b", "a", "c", "d", "a"], retain=True))
        assert await acknowledged(client, 6) == [0, 0, 0, 0, 0x97, 0]
        assert len(one.adapter.node.retained) == 3


@pytest.mark.parametrize("options", [{}, {"retain": True}], ids=["plain", "retained"])
async def test_a_full_disk_refuses_all_and_leaves_nothing(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one.client("p")
        subscriber = await one.client("s")
        await subscriber.subscribe(("#", 1))
        with full_disk(one):
            client.send(bytes_of(["a", "b", "a", "c"], **options))
            assert await acknowledged(client, 4) == [0x97] * 4
        assert await records_of(one) == []
        assert len(one.adapter.node.retained) == 0
        assert server_side(one, "p").inbound._window.count == 0
        client.send(bytes_of(["a", "b", "a", "c"], **options))
        assert await acknowledged(client, 4) == [0] * 4
        assert len(await subscriber.take(4)) == 4


async def test_more_than_the_receive_maximum_ends_the_connection(
    tmp_path: Path,
) -> None:  # MQTT-3.3.4-9
    async with restartable_node(tmp_path, mqtt={"session": {"receive_max": 10}}) as one:
        client = await one.client("p")
        client.send(bytes_of(TOPICS[:10]))
        await acknowledged(client, 10)
        one.live.storage.held = True
        client.send(bytes_of(TOPICS[:11]))
        assert (await client.ended_with())[-1] == (Kind.DISCONNECT, 0x93)


async def test_it_waits_while_the_log_has_more_than_it_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one.client("p")
        connection = server_side(one, "p")
        with monkeypatch.context() as patch:
            patch.setattr(Publishing, "is_saturated", True)
            patch.setattr(one.adapter.node.publishing, "hold", lambda _release: None)
            client.send(bytes_of(TOPICS))
            await until(lambda: len(connection._queued) == 1)
            assert not connection.inbound.is_pending
        connection._on_log_low()
        await acknowledged(client, len(TOPICS))


async def test_a_reader_that_may_take_no_more_is_held(tmp_path: Path) -> None:
    async with restartable_node(tmp_path, mqtt={"unacknowledged_bytes_max": 65_536}) as one:
        client = await one.client("p")
        one.live.storage.held = True
        connection = server_side(one, "p")
        client.send(bytes_of(["a", "b"] * 10, [bytes(5_000)] * 20))
        await until(lambda: "unacknowledged" in connection._holds)
        one.live.storage.release()
        await acknowledged(client, 20)
        assert "unacknowledged" not in connection._holds
