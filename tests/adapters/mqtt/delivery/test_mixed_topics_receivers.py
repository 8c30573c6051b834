"""A mixed of QoS 0 to receivers of many kinds, most of which want one of its topics."""

from pathlib import Path
from typing import Final

import pytest

from adapters.mqtt.delivery.distributor import Distributor
from adapters.mqtt.wire import PublishRun
from tests.adapters.mqtt.publishing.test_mixed_topics import acknowledged, bytes_of
from tests.adapters.mqtt.publishing.test_one_in_flight_batches import server_side
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1, V3_1_1, V5, Kind, Prop
from tests.support.waiting import until

NO_LOCAL: Final = 0x04
AS_PUBLISHED: Final = 0x08
SMALL_BYTES: Final = 35
KINDS: Final = (
    "old",
    "older",
    "new",
    "known",
    "flags",
    "small",
    "short",
    "two",
    "shared",
    "own",
)
REPEATS: Final = 3
TOPICS: Final = [f"d/{kind}" for kind in KINDS] * REPEATS
BODIES: Final = [b"%d" % number + bytes(number) for number in range(len(TOPICS))]

Seen = dict[str, list[tuple[int, bytes]]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The topics of what is delivered as a run."""
    topics: list[bytes] = []
    deliver = Distributor.deliver

    def noting(self: Distributor, run: PublishRun, feed: object = None) -> None:
        topics.append(run.topic)
        deliver(self, run, feed)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(Distributor, "deliver", noting)
    return topics


async def receivers(one: RestartableNode, publisher: Client) -> dict[str, Client]:
    """Return a client of each kind, subscribed to a topic of its own name."""
    small = ((Prop.MAXIMUM_PACKET_SIZE, SMALL_BYTES),)
    aliases = ((Prop.TOPIC_ALIAS_MAXIMUM, 5),)
    found = {
        "old": await one.client("old", version=V3_1_1),
        "older": await one.client("older", version=V3_1),
        "new": await one.client("new"),
        "known": await one.client("known"),
        "flags": await one.client("flags", kept=True),
        "small": await one.client("small", found=small),
        "short": await one.client("short", found=aliases),
        "two": await one.client("two"),
        "second": await one.client("second"),
        "shared": await one.client("shared"),
    }
    filters = {"shared": "$share/g/d/shared", "second": "d/two"}
    for kind, client in found.items():
        options = AS_PUBLISHED if kind == "flags" else 1 if kind == "new" else 0
        identifier = ((Prop.SUBSCRIPTION_ID, 7),) if kind == "known" else ()
        await client.subscribe((filters.get(kind, f"d/{kind}"), options), found=identifier)
    await publisher.subscribe(("d/own", NO_LOCAL if publisher.version == V5 else 0))
    return {**found, "own": publisher}


async def came_to(client: Client) -> list[tuple[int, bytes]]:
    """Return flags and bytes of all that came."""
    client.send(wire.PINGREQ)
    came = []
    while (found := await client.next()) is not None and found.kind is not Kind.PINGRESP:
        came.append((found.flags, found.body))
    return came


async def seen(
    folder: Path, version: int, found: wire.Properties, *, together: bool, **options: object
) -> Seen:
    async with restartable_node(folder) as one:
        publisher = await one.client("p", version=version)
        clients = await receivers(one, publisher)
        packets = [
            wire.publish(topic, body, version=version, found=found, **options)  # type: ignore[arg-type]  # retain
            for topic, body in zip(TOPICS, BODIES, strict=True)
        ]
        connection = server_side(one, "p")
        for read in [b"".join(packets)] if together else packets:
            connection.guard(connection.receive, read)
        await one.delivered()
        came = {kind: await came_to(client) for kind, client in clients.items()}
        counters = one.adapter.node.counters
        assert counters.publish_received == len(TOPICS)
        assert counters.publish_sent == sum(map(len, came.values()))
        return came


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize(
    ("version", "found"),
    [(V3_1, ()), (V3_1_1, ()), (V5, ()), (V5, ((Prop.CONTENT_TYPE, "x"),))],
    ids=["3.1", "3.1.1", "5", "5 with properties"],
)
async def test_all_kinds_get_what_they_get_of_each_alone(
    tmp_path: Path, version: int, found: wire.Properties, *, retain: bool
) -> None:
    alone = await seen(tmp_path / "alone", version, found, together=False, retain=retain)
    as_one = await seen(tmp_path / "as one", version, found, together=True, retain=retain)

    assert as_one == alone
    counts = {kind: len(came) for kind, came in as_one.items()}
    assert 0 < counts.pop("small") < REPEATS  # its packets become too large
    assert counts.pop("own") == (0 if version == V5 else REPEATS)
    assert set(counts.values()) == {REPEATS}


@pytest.mark.parametrize("version", [V3_1_1, V5])
async def test_what_one_of_the_same_version_wants_goes_on_as_it_came(
    tmp_path: Path, version: int, runs: list[bytes]
) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p", version=version)
        clients = await receivers(one, publisher)
        publisher.send(bytes_of(TOPICS, BODIES, qos=0, version=version))
        await one.delivered()
        lone = {"new", "flags", "small"} if version == V5 else {"old", "older", "own"}
        for kind in lone - {"small"}:
            assert len(await came_to(clients[kind])) == REPEATS
        assert {run.decode() for run in runs} == {
            f"d/{kind}" for kind in KINDS if kind not in lone or kind == "small"
        }
        fit = len(await came_to(clients["small"]))
        assert runs.count(b"d/small") == REPEATS - (fit if version == V5 else 0)
        feeds = one.adapter.node.feeds
        assert not any(feed._recent for feed in feeds)  # nor does the live end make runs


async def test_who_reads_slowly_gets_it_later_and_nobody_else_does(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        clients = await receivers(one, publisher)
        slow = server_side(one, "new")
        slow.pause_writing()
        slow.send(wire.publish("d/new", bytes(5 << 20)))  # more than may wait for a receiver
        publisher.send(bytes_of(TOPICS, BODIES, qos=0))
        await publisher.silent()
        assert len(await came_to(clients["flags"])) == REPEATS
        session = one.session("new")
        assert session is not None
        assert session.slow_receivers
        publisher.send(bytes_of(TOPICS, BODIES, qos=0))
        await publisher.silent()
        slow.resume_writing()
        came = await clients["new"].messages(1 + 2 * REPEATS)
        once = [body for body, topic in zip(BODIES, TOPICS, strict=True) if topic == "d/new"]
        assert [found.payload for found in came[1:]] == once * 2
        await until(lambda: not session.slow_receivers)
        counts = {kind: len(await came_to(clients[kind])) for kind in ("new", "flags")}
        assert counts == {"new": 0, "flags": REPEATS}


async def test_who_has_gone_gets_nothing_and_is_no_bug(tmp_path: Path) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        clients = await receivers(one, publisher)
        await clients["flags"].drop()
        await one.gone("flags")
        again = await one.client("flags", version=V3_1_1)
        await again.subscribe(("d/flags", 0))
        publisher.send(bytes_of(TOPICS, BODIES, qos=0))
        await publisher.silent()
        came = await came_to(again)
        assert [body for _, body in came] == [
            wire.publish(topic, value, version=V3_1_1)[2:]
            for topic, value in zip(TOPICS, BODIES, strict=True)
            if topic == "d/flags"
        ]


@pytest.mark.parametrize("away", [False, True])
async def test_what_came_with_others_comes_once(tmp_path: Path, *, away: bool) -> None:
    async with restartable_node(tmp_path) as one:
        publisher = await one.client("p")
        clients = await receivers(one, publisher)
        publisher.send(bytes_of(TOPICS, BODIES, qos=0))
        await came_to(clients["flags"])
        if away:  # who was there when the first ones came
            await clients["flags"].drop()
            await one.gone("flags")
        own = server_side(one, "p")
        own.receive(bytes_of(TOPICS, BODIES, qos=0) + bytes_of(["d/new", "d/new"]))
        assert await acknowledged(publisher, 2) == [0, 0]
        await one.delivered()
        found = [body for _, body in await came_to(clients["new"])]
        assert len(found) == 2 * REPEATS + 2
        if not away:
            assert len(await came_to(clients["flags"])) == REPEATS
