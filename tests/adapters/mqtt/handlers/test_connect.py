"""CONNECT: refusals in their order, what CONNACK says, who the client is."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from adapters.mqtt.wire import Will
from gateway.auth.ports import Principal
from gateway.model import DEFAULT_NAMESPACE, TopicName
from tests.adapters.mqtt.live import PASSWORD, Live, running
from tests.support import mqtt_wire as wire
from tests.support.certificates import make_certificate
from tests.support.mqtt_wire import V3_1, V3_1_1, V5, Kind, Prop, WillMessage


async def refused(live: Live, version: int, **options: object) -> list[tuple[Kind, int]]:
    client = await live.client(version)
    client_id = str(options.pop("client_id", "c"))
    client.send(wire.connect(client_id, version=version, **options))  # type: ignore[arg-type]
    return await client.ended_with()


@pytest.mark.parametrize(("version", "code"), [(V3_1, 2), (V3_1_1, 2)])
async def test_an_empty_identifier_with_a_kept_session_is_refused(
    tmp_path: Path, version: int, code: int
) -> None:
    """MQTT 3.1.1: MQTT-3.1.3-8."""
    async with running(tmp_path) as live:
        answer = await refused(live, version, client_id="", clean=False)
        assert answer == [(Kind.CONNACK, code)]


async def test_an_identifier_is_assigned_and_told(tmp_path: Path) -> None:
    """MQTT-3.1.3-6, MQTT-3.2.2-16."""
    async with running(tmp_path) as live:
        first, second = await live.client(), await live.client()
        names = [
            (await one.connect("")).value(Prop.ASSIGNED_CLIENT_ID) for one in (first, second)
        ]
        assert None not in names
        assert len(set(names)) == 2
        assert (await (await live.client()).connect("own")).value(
            Prop.ASSIGNED_CLIENT_ID
        ) is None


async def test_more_than_connects_per_s_max_are_told_to_come_back(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"connects_per_s_max": 1}) as live:
        await live.connected("a")
        assert await refused(live, V5) == [(Kind.CONNACK, 0x9F)]
        assert await refused(live, V3_1_1) == [(Kind.CONNACK, 3)]


async def test_a_sessions_expiry_is_clamped_and_told(tmp_path: Path) -> None:
    """Section 3.2.2.3.2."""
    async with running(tmp_path, mqtt={"session": {"expiry_s_max": 60}}) as live:
        long = await (await live.client()).connect("a", found=[(Prop.SESSION_EXPIRY, 61)])
        short = await (await live.client()).connect("b", found=[(Prop.SESSION_EXPIRY, 59)])
        assert long.value(Prop.SESSION_EXPIRY) == 60
        assert short.value(Prop.SESSION_EXPIRY) is None


@pytest.mark.parametrize(("asked", "told"), [(0, 30), (31, 30), (30, None), (5, None)])
async def test_the_servers_keep_alive_is_told(
    tmp_path: Path, asked: int, told: int | None
) -> None:
    """MQTT-3.2.2-21, MQTT-3.2.2-22."""
    async with running(tmp_path, mqtt={"keep_alive_s_max": 30}) as live:
        answer = await (await live.client()).connect(keep_alive_s=asked)
        assert answer.value(Prop.SERVER_KEEP_ALIVE) == told


async def test_response_information_comes_when_it_is_asked_for(tmp_path: Path) -> None:
    """MQTT-3.1.2-28."""
    async with running(tmp_path) as live:
        asking = await (await live.client()).connect(
            "a", found=[(Prop.REQUEST_RESPONSE_INFO, 1)]
        )
        silent = await (await live.client()).connect("b")
        assert asking.value(Prop.RESPONSE_INFO) == "responses/a"
        assert silent.value(Prop.RESPONSE_INFO) is None


@pytest.mark.parametrize(("data", "is_told"), [(65_525, True), (65_526, False)])
async def test_an_identifier_too_long_for_a_topic_has_no_response_information(
    tmp_path: Path, data: int, *, is_told: bool
) -> None:
    async with running(tmp_path) as live:
        name = "x" * data
        answer = await (await live.client()).connect(
            name, found=[(Prop.REQUEST_RESPONSE_INFO, 1)]
        )
        assert answer.code == 0
        assert answer.value(Prop.RESPONSE_INFO) == (f"responses/{name}" if is_told else None)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"found": [(Prop.RECEIVE_MAXIMUM, 0)]}, 0x82),
        ({"found": [(Prop.RECEIVE_MAXIMUM, 1), (Prop.RECEIVE_MAXIMUM, 1)]}, 0x82),
        ({"will": WillMessage("a/+", b"")}, 0x90),
        ({"will": WillMessage("", b"")}, 0x90),
        ({"will": WillMessage("a", b"", qos=3)}, 0x81),
    ],
)
async def test_a_connect_at_fault_is_told_so_by_5_0(
    tmp_path: Path, options: dict[str, Any], code: int
) -> None:
    """5.0: MQTT-3.1.4-1 (a server MAY say why); 3.1.1: MQTT-3.1.4-1 (it says nothing)."""
    async with running(tmp_path) as live:
        assert await refused(live, V5, **options) == [(Kind.CONNACK, code)]
        if "will" in options:
            assert await refused(live, V3_1_1, **options) == []


async def test_a_connack_that_the_client_cannot_take_is_not_sent(tmp_path: Path) -> None:
    """MQTT-3.1.2-24."""
    async with running(tmp_path) as live:
        small = await refused(live, V5, found=[(Prop.MAXIMUM_PACKET_SIZE, 8)])
        assert small == [(Kind.CONNACK, 0x95)]
        assert await refused(live, V5, found=[(Prop.MAXIMUM_PACKET_SIZE, 4)]) == []


@pytest.mark.parametrize(
    ("version", "credentials", "code"),
    [
        (V5, {"username": "ada", "password": b"wrong"}, 0x86),
        (V5, {"username": "nobody", "password": b"password"}, 0x86),
        (V5, {"username": "ada", "password": b"\xff"}, 0x86),
        (V5, {}, 0x87),
        (V3_1_1, {"username": "ada", "password": b"wrong"}, 4),
        (V3_1_1, {}, 5),
    ],
)
async def test_nobody_gets_in_without_the_right_password(
    tmp_path: Path, version: int, credentials: dict[str, object], code: int
) -> None:
    async with running(tmp_path, users=("ada",)) as live:
        assert await refused(live, version, **credentials) == [(Kind.CONNACK, code)]


async def test_what_comes_before_connack_is_served_after_it(tmp_path: Path) -> None:
    async with running(tmp_path, users=("ada",)) as live:
        client = await live.client()
        client.send(
            wire.connect("c", username="ada", password=PASSWORD.encode()),
            wire.subscribe(7, [("a", 0)]),
            wire.PINGREQ,
        )
        kinds = [(await client.next()).kind for _ in range(3)]  # type: ignore[union-attr]
        assert kinds[0] is Kind.CONNACK
        assert set(kinds[1:]) == {Kind.SUBACK, Kind.PINGRESP}
        assert live.connection().principal == Principal("ada", "mqtt", "127.0.0.1")


async def test_a_name_that_nobody_checked_counts_for_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        await live.connected("c", username="ada", password=b"anything")
        assert live.connection().principal.is_anonymous


async def test_another_users_session_is_not_taken_over(tmp_path: Path) -> None:
    async with running(tmp_path, users=("ada", "bob")) as live:
        kept: dict[str, Any] = {"clean": False, "found": [(Prop.SESSION_EXPIRY, 60)]}
        word: dict[str, Any] = {"password": PASSWORD.encode()}
        await live.connected("shared", username="ada", **word, **kept)
        answer = await refused(live, V5, client_id="shared", username="bob", **word)
        assert answer == [(Kind.CONNACK, 0x85)]


async def test_a_certificates_common_name_is_the_user(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    tls = {"bind": "127.0.0.1:0", "tls_cert": cert, "tls_key": key, "tls_client_ca": cert}
    context = ssl.create_default_context(cafile=str(cert))
    context.load_cert_chain(cert, key)
    async with running(tmp_path, mqtt={"tls": tls}, users=("ada",)) as live:
        client = await live.client(tls=context)
        assert (await client.connect()).code == 0
        [connection] = live.adapter.listeners[1].connections
        assert connection.describe()["user"] == "localhost"
        client.writer.close()
        await asyncio.wait_for(client.reader.read(), 60)


@pytest.mark.parametrize(
    ("version", "topic", "code"),
    [(V5, "$SYS/x", 0x90), (V5, "no/x", 0x87), (V3_1_1, "no/x", 5)],
)
async def test_a_will_that_may_not_be_published_is_refused_at_once(
    tmp_path: Path, version: int, topic: str, code: int
) -> None:
    acl = [{"effect": "deny", "action": "publish", "filter": "no/#"}]
    async with running(tmp_path, mqtt={"acl": acl}) as live:
        answer = await refused(live, version, will=WillMessage(topic, b"x"))
        assert answer == [(Kind.CONNACK, code)]


@pytest.mark.parametrize(("version", "code"), [(V5, 0x95), (V3_1_1, 5)])
@pytest.mark.parametrize("topic", ["t", "$delayed/5/t"])
async def test_a_will_that_its_topic_never_takes_is_refused_at_once(
    tmp_path: Path, version: int, code: int, topic: str
) -> None:
    async with running(tmp_path) as live:
        name = TopicName(DEFAULT_NAMESPACE, "mqtt")
        await live.kernel.topics.alter_configs(name, {"max.message.bytes": "1000"})
        answer = await refused(live, version, will=WillMessage(topic, b"x" * 1_000))
        assert answer == [(Kind.CONNACK, code)]
        assert live.adapter.node.sessions.count == 0
        await live.connected(version=version, will=WillMessage(topic, b"x" * 600))


async def test_the_largest_will_that_is_let_in_is_published(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        name = TopicName(DEFAULT_NAMESPACE, "mqtt")
        await live.kernel.topics.alter_configs(name, {"max.message.bytes": "1000"})
        refusal = live.adapter.node.publishing.will_refusal
        sizes = [size for size in range(1_000) if not refusal("c", Will("t", bytes(size), 1))]
        watcher = await live.connected("watcher")
        watcher.send(wire.subscribe(1, [("t", 0)]))
        await watcher.receive(Kind.SUBACK)
        client = await live.connected(will=WillMessage("t", bytes(max(sizes)), qos=1))
        client.writer.transport.abort()
        assert len((await watcher.receive(Kind.PUBLISH)).payload) == max(sizes) > 800
        assert await refused(live, V5, will=WillMessage("t", bytes(max(sizes) + 1), qos=1)) == [
            (Kind.CONNACK, 0x95)
        ]


@pytest.mark.parametrize("level", [2, 6])
async def test_an_unknown_level_is_answered_with_1(tmp_path: Path, level: int) -> None:
    """MQTT 3.1.1: MQTT-3.1.2-2."""
    async with running(tmp_path) as live:
        client = await live.client(V3_1_1)
        client.send(wire.connect("c", version=level, name="MQTT"))
        assert await client.ended_with() == [(Kind.CONNACK, 1)]


async def test_who_sends_no_connect_in_time_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"handshake_s_max": 1}) as live:
        client = await live.client()
        assert await client.ended_with() == []
        assert live.adapter.listener.faults["handshake_s_max"] == 1
