"""Packets of one read are answered, kept and refused as if each had come in a read of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from gateway.config.auth import AuthRule
from tests.adapters.mqtt.disk_faults import full_disk
from tests.adapters.mqtt.publishing.test_mixed_topics import FOUR, bytes_of, records_of
from tests.adapters.mqtt.publishing.test_one_in_flight_batches import server_side
from tests.adapters.mqtt.restartable_node import Client, RestartableNode, restartable_node
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop


class Case(NamedTuple):
    """Packets of QoS 1 with these topics and payloads, and then ``after``."""

    topics: Sequence[str]
    bodies: Sequence[bytes] | None = None
    mqtt: Mapping[str, Any] = {}
    before: Mapping[str, bytes] = {}  # retained already
    after: bytes = b""
    options: Mapping[str, Any] = {}


DENIED: Final = {"acl": [{"effect": "deny", "filter": "no/#"}]}
ALLOWED: Final = {"acl_default": "deny", "acl": [{"effect": "allow", "filter": "t/#"}]}
TEN: Final = {"session": {"receive_max": 10}}
MANY: Final = [f"t/{number}" for number in range(15)]
RETAINED: Final = {"retain": True}
LENGTH_NOT_MINIMAL: Final = b"\x32\x81\x00" + bytes(9)
FIVE_BYTES: Final = b"\x32\xff\xff\xff\xff\x01" + bytes(9)

CASES: Final = {
    "a length that is not minimal": Case(MANY, after=LENGTH_NOT_MINIMAL),
    "a length of five bytes": Case(MANY, after=FIVE_BYTES),
    "a wildcard": Case([*MANY, "a/+", *MANY]),
    "more than the Receive Maximum": Case(MANY, mqtt=TEN),
    "refused, which frees the window": Case([f"no/{n}" for n in range(15)], mqtt=DENIED | TEN),
    "rules that allow some": Case(["t/1", "u/1", "t/2", "u/2", "t/3"], mqtt=ALLOWED),
    "topics of the server": Case(["a", "$SYS/a", "b", "$delayed/60/a", "$delayed/x/a", "c"]),
    "too many levels": Case(["a", "b", "a/b/c/d", "d"], mqtt={"topic_levels_max": 3}),
    "a topic too many, and one that goes": Case(
        ["c", "a", "d", "e"],
        [b"c", b"", b"d", b"e"],
        {"retained_max": 2},
        {"a": b".", "b": b"."},
        options=RETAINED,
    ),
    "bytes too many, and then fewer": Case(
        ["a", "b", "a", "c"],
        [bytes(1_100_000), b"b", b"small", b"c"],
        {"retained_bytes_max": 1 << 20, "packet_bytes_max": 2_000_000},
        options=RETAINED,
    ),
    "room that is made too late": Case(
        ["b", "a", "c", "d"],
        [bytes(500_000), b"small", b"c", b"d"],
        {"retained_bytes_max": 1 << 20, "packet_bytes_max": 2_000_000},
        {"a": bytes(900_000)},
        options=RETAINED,
    ),
}  # fmt: skip


class Outcome(NamedTuple):
    answers: list[tuple[Kind, int, int]]
    stored: list[tuple[bytes | None, bytes | None, object]]
    retained: dict[bytes, bytes]


async def outcome_of(folder: Path, case: Case, *, together: bool, version: int) -> Outcome:
    async with restartable_node(folder, mqtt={**FOUR, **case.mqtt}) as one:
        client = await one.client("p", version=version)
        if case.before:
            bodies = list(case.before.values())
            client.send(bytes_of(list(case.before), bodies, version=version, retain=True))
            for _ in case.before:
                await client.receive(Kind.PUBACK)
        connection = server_side(one, "p")
        packets = [
            wire.publish(topic, body, qos=1, packet_id=n, version=version, **case.options)
            for n, (topic, body) in enumerate(
                zip(case.topics, case.bodies or [b"."] * len(case.topics), strict=True), start=1
            )
        ]
        packets.append(case.after)
        for read in [b"".join(packets)] if together else packets:
            connection.guard(connection.receive, read)
            if connection.is_closing:
                break
        client.send(wire.disconnect(version=version))
        answers = await answers_to(client)
        found = [
            record for number in range(4) for record in await records_of(one, "mqtt", number)
        ]
        return Outcome(
            answers,
            [(record.key, record.value, record.headers) for record in found],
            {topic: value[10:] for topic, value in one.adapter.node.retained._values.items()},
        )


async def answers_to(client: Client) -> list[tuple[Kind, int, int]]:
    answers = []
    while (came := await client.next()) is not None:
        number = came.packet_id if came.kind is Kind.PUBACK else 0
        answers.append((came.kind, number, came.code))
    return answers


@pytest.mark.parametrize("version", [V3_1_1, V5])
@pytest.mark.parametrize("name", CASES)
async def test_all_is_as_if_each_had_come_alone(
    tmp_path: Path, name: str, version: int
) -> None:
    wanted = await outcome_of(tmp_path / "alone", CASES[name], together=False, version=version)
    found = await outcome_of(tmp_path / "as one", CASES[name], together=True, version=version)
    assert found == wanted


async def test_what_is_refused_leaves_nothing_in_the_routes_that_all_share(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path, mqtt={**FOUR, **DENIED}) as one:
        client = await one.client("p")
        client.send(bytes_of([f"no/{number}" for number in range(15)]))
        for _ in range(15):
            assert (await client.receive(Kind.PUBACK)).code == 0x87
        assert not one.adapter.node.routes._rest


async def test_who_may_not_write_to_the_topic_of_the_log_is_refused(tmp_path: Path) -> None:
    rules = (
        AuthRule(pattern="literal", name="other"),
        AuthRule(pattern="literal", name="mqtt", operation="read"),
    )
    routes = {"routes": [{"filter": "yes/#", "topic": "other"}]}
    async with restartable_node(tmp_path, mqtt=routes, rules=rules) as one:
        client = await one.client("p")
        client.send(bytes_of(["yes/1", "yes/2", "yes/3", "yes/4", "no/5", "yes/6"]))
        client.send(bytes_of(["no/1", "no/2", "no/3", "no/4"]))
        codes = [(await client.receive(Kind.PUBACK)).code for _ in range(10)]
        assert codes == [0, 0, 0, 0, 0x87, 0] + [0x87] * 4


async def test_who_leaves_is_answered_first(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        client = await one.client("p")
        connection = server_side(one, "p")
        with full_disk(one):
            connection.receive(wire.publish("e", b"e", qos=1, packet_id=1))
            connection.hurry()
            connection.receive(wire.publish("large", bytes(1_048_400), qos=1, packet_id=2))
            connection.receive(wire.publish("large", bytes(2_000), qos=1, packet_id=3))
            connection.receive(bytes_of(["a", "b", "c", "d"]))
            came = await client.ended_with()
        assert came == [(Kind.PUBACK, 0x97)] * 7 + [(Kind.DISCONNECT, 0x8B)]


async def slow_reader(one: RestartableNode, room: int, topic_filter: str) -> Client:
    found = ((Prop.RECEIVE_MAXIMUM, room),)
    client = await one.client("slow", kept=True, found=found)
    if not client.session_present:
        await client.subscribe((topic_filter, 1))
    return client


@pytest.mark.parametrize("topic_filter", ["#", "$share/g/#"])
@pytest.mark.parametrize("message_bytes_max", ["1000", "20000"])
async def test_what_is_more_than_a_batch_reaches_slow_readers_once(
    tmp_path: Path, topic_filter: str, message_bytes_max: str
) -> None:
    async with restartable_node(tmp_path) as one:
        name = one.partition().topic.name
        await one.kernel.topics.alter_configs(name, {"max.message.bytes": message_bytes_max})
        slow = await slow_reader(one, 7, topic_filter)
        client = await one.client("p")
        topics = [f"t/{number % 5}" for number in range(300)]
        bodies = [b"%d:" % number + bytes(300) for number in range(300)]
        for _ in range(2):
            server_side(one, "p").receive(bytes_of(topics, bodies))
            for _ in topics:
                await client.receive(Kind.PUBACK)
        seen = [found.payload for found in await slow.take(50)]
        await slow.drop()
        await one.gone("slow")
        slow = await slow_reader(one, 9, topic_filter)
        while len(seen) < 600:
            (found,) = await slow.take(1)
            if not found.dup or found.payload not in seen:
                seen.append(found.payload)
        assert seen == bodies * 2
        await slow.silent()
        feeds = one.adapter.node.feeds
        kept = [run for feed in feeds for runs in feed._recent.values() for run in runs]
        assert len(kept) <= 600  # no message is kept with two batches
