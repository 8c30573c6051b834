"""SUBSCRIBE and UNSUBSCRIBE: a code for each filter."""

from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.mqtt.handlers import TABLES, filter_work
from adapters.mqtt.reading.pacing import Pace
from adapters.mqtt.session import State
from adapters.mqtt.wire import Pingreq
from tests.adapters.mqtt.live import running
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import V3_1_1, V5, Kind, Prop
from tests.support.waiting import until

NO_LOCAL = 0x04
MANY = 1_000  # filters, far more than one step takes
DENY_NO = [{"effect": "deny", "filter": "no/#"}]


async def test_each_filter_has_its_code_in_order(tmp_path: Path) -> None:
    """MQTT-3.8.4-6, MQTT-3.9.3-1."""
    async with running(tmp_path, mqtt={"acl": DENY_NO}) as live:
        client = await live.connected()
        filters = [("a", 2), ("a/#/b", 0), ("no/x", 1), ("$share/g/b", 1), ("#", 0), ("b", 0)]
        client.send(wire.subscribe(7, filters))
        answer = await client.receive(Kind.SUBACK)
        assert (answer.packet_id, answer.codes) == (7, [2, 0x8F, 0x87, 1, 0x87, 0])
        assert answer.value(Prop.REASON_STRING)


async def test_in_3_a_denied_filter_is_a_failure_and_a_bad_one_the_end(tmp_path: Path) -> None:
    """MQTT 3.1.1: MQTT-3.9.3-2, MQTT-4.8.0-1."""
    async with running(tmp_path, mqtt={"acl": DENY_NO}) as live:
        client = await live.connected(version=V3_1_1)
        client.send(wire.subscribe(7, [("no/x", 1), ("a", 1)], version=V3_1_1))
        assert (await client.receive(Kind.SUBACK)).codes == [0x80, 1]
        client.send(wire.subscribe(8, [("a#", 1)], version=V3_1_1))
        assert await client.ended_with() == []


async def test_subscriptions_of_one_session_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path, mqtt={"session": {"subscriptions_max": 2}}) as live:
        client = await live.connected()
        client.send(wire.subscribe(1, [("a", 0), ("a", 1), ("b", 0), ("c", 0)]))
        assert (await client.receive(Kind.SUBACK)).codes == [0, 1, 0, 0x97]
        client.send(wire.subscribe(2, [("b", 1), ("d", 0)]))
        assert (await client.receive(Kind.SUBACK)).codes == [1, 0x97]


@pytest.mark.parametrize("topic_filter", ["$share/g/a", "$queue/a"])
async def test_no_local_on_a_shared_subscription_is_a_protocol_error(
    tmp_path: Path, topic_filter: str
) -> None:
    """MQTT-3.8.3-4."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.subscribe(1, [(topic_filter, NO_LOCAL)]))
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x82)]


@pytest.mark.parametrize(("handling", "first", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
async def test_retain_handling(tmp_path: Path, handling: int, first: int, again: int) -> None:
    """MQTT-3.3.1-9, MQTT-3.3.1-10, MQTT-3.3.1-11."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.publish("a", b"kept", qos=1, retain=True))
        await client.receive(Kind.PUBACK)
        for count in (first, again):
            client.send(wire.subscribe(2, [("a", handling << 4)]))
            await client.receive(Kind.SUBACK)
            for _ in range(count):
                assert (await client.receive(Kind.PUBLISH)).retain
            client.send(wire.PINGREQ)
            await client.receive(Kind.PINGRESP)


async def test_unsubscribe_says_what_there_was(tmp_path: Path) -> None:
    """MQTT-3.10.4-5, MQTT-3.11.3-1."""
    async with running(tmp_path) as live:
        client = await live.connected()
        client.send(wire.subscribe(1, [("a", 0), ("$share/g/a", 0)]))
        await client.receive(Kind.SUBACK)
        client.send(wire.unsubscribe(2, ["$share/g/a", "b", "a#", "a", "a"]))
        answer = await client.receive(Kind.UNSUBACK)
        assert (answer.packet_id, answer.codes) == (2, [0, 0x11, 0x8F, 0, 0x11])


async def test_an_answer_that_the_client_cannot_take_ends_the_connection(
    tmp_path: Path,
) -> None:
    """MQTT-3.1.2-24."""
    async with running(tmp_path) as live:
        client = await live.connected(version=V5, found=[(Prop.MAXIMUM_PACKET_SIZE, 64)])
        client.send(wire.subscribe(1, [(f"a/{number}", 0) for number in range(100)]))
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x95)]


@pytest.mark.parametrize(("version", "refused"), [(V5, 0x97), (V3_1_1, 0x80)])
async def test_bytes_of_a_session_s_filters_are_bounded(
    tmp_path: Path, version: int, refused: int
) -> None:
    async with running(tmp_path, mqtt={"session": {"filter_bytes_max": 8}}) as live:
        client = await live.connected(version=version)
        filters = [
            ("a/+", 0),
            ("bcdéf", 0),
            ("a/+", 1),
            ("$share/g/a", 0),
            ("é/#", 1),
            ("c", 0),
        ]
        client.send(wire.subscribe(1, filters, version=version))
        codes = [0, refused, 1, refused, 1, 0]
        assert (await client.receive(Kind.SUBACK)).codes == codes

        client.send(wire.subscribe(2, [("d", 0)], version=version))
        assert (await client.receive(Kind.SUBACK)).codes == [refused]
        client.send(wire.unsubscribe(3, ["c"], version=version))
        await client.receive(Kind.UNSUBACK)
        client.send(wire.subscribe(4, [("d", 0)], version=version))
        assert (await client.receive(Kind.SUBACK)).codes == [0]


@pytest.mark.parametrize(("version", "end"), [(V5, [(Kind.DISCONNECT, 0x97)]), (V3_1_1, [])])
@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe"])
async def test_filters_of_one_packet_are_bounded(
    tmp_path: Path, version: int, end: list[tuple[Kind, int]], kind: str
) -> None:
    async with running(tmp_path, mqtt={"packet_filters_max": 3}) as live:
        client = await live.connected(version=version)
        client.send(filters_packet(kind, 1, ["a", "b", "c"], version))
        await client.receive(Kind.SUBACK if kind == "subscribe" else Kind.UNSUBACK)
        client.send(filters_packet(kind, 2, ["a", "b", "c", "d"], version))
        assert await client.ended_with() == end


def filters_packet(kind: str, packet_id: int, filters: list[str], version: int = V5) -> bytes:
    if kind == "unsubscribe":
        return wire.unsubscribe(packet_id, filters, version=version)
    return wire.subscribe(packet_id, [(one, 1) for one in filters], version=version)


@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe"])
@pytest.mark.parametrize("per_packet", [MANY, 20])
async def test_others_are_served_between_the_filters_of_one_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, per_packet: int
) -> None:
    """Many filters in one packet, or in many; what comes behind them keeps its order."""
    async with running(tmp_path) as live:
        live.adapter.node.context.pace = Pace(slice_s=0.0)  # one step, then others
        served = note_what_is_served(monkeypatch)
        other, client = await live.connected("other"), await live.connected("many")
        filters = [f"a/{number}" for number in range(MANY)]
        packets = [
            filters_packet(kind, 1 + at, filters[at : at + per_packet])
            for at in range(0, MANY, per_packet)
        ]
        client.send(*packets, wire.disconnect())
        await until(lambda: bool(served))
        other.send(wire.PINGREQ)
        await other.receive(Kind.PINGRESP)

        answer = Kind.SUBACK if kind == "subscribe" else Kind.UNSUBACK
        codes: list[int] = []
        for _ in packets:
            codes += (await client.receive(answer)).codes
        assert codes == [1 if kind == "subscribe" else 0x11] * MANY
        assert await client.ended_with() == []
        assert "filters" in served[served.index("ping") :]


def note_what_is_served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note each piece of work on filters, and each PINGREQ, in their order."""
    served: list[str] = []

    def noting(what: str, work: Callable[..., None]) -> Callable[..., None]:
        def serve(*args: object) -> None:
            served.append(what)
            work(*args)

        return serve

    steps = filter_work._Steps
    monkeypatch.setattr(steps, "go", noting("filters", steps.go))
    connected = dict(TABLES[State.CONNECTED])
    connected[Pingreq] = noting("ping", connected[Pingreq])
    monkeypatch.setitem(TABLES, State.CONNECTED, connected)
    return served


async def test_who_closes_amid_its_filters_has_what_it_got_and_no_other_suffers(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        live.adapter.node.context.pace = Pace(slice_s=0.0)
        other = await live.connected("other")
        client = await live.connected("many", found=[(Prop.SESSION_EXPIRY, 100)])
        client.send(filters_packet("subscribe", 1, [f"a/{number}" for number in range(MANY)]))
        session = live.adapter.node.sessions.find("many")
        assert session is not None
        await until(lambda: bool(session.subscriptions))
        again = await live.client()
        assert (await again.connect("many", clean=False)).session_present

        other.send(wire.publish("a/0", b"kept", qos=1, packet_id=1))
        assert (await again.receive(Kind.PUBLISH)).payload == b"kept"
        assert await client.ended_with() == [(Kind.DISCONNECT, 0x8E)]
        assert len(session.subscriptions) < MANY
        assert dict(live.adapter.listener.faults) == {}  # nobody went on with its filters
        assert session.filter_bytes == sum(map(len, session.subscriptions))


@pytest.mark.parametrize("expiry_s", [0, 50])
async def test_a_farewell_behind_many_filters_is_heeded_when_nobody_waits_for_them(
    tmp_path: Path, expiry_s: int
) -> None:
    """Section 3.14.2.2.2; it was read, though not served."""
    async with running(tmp_path) as live:
        live.adapter.node.context.pace = Pace(slice_s=0.0)
        client = await live.connected("many", found=[(Prop.SESSION_EXPIRY, 100)])
        packet = filters_packet("subscribe", 1, [f"a/{number}" for number in range(MANY)])
        client.send(packet, wire.disconnect(found=[(Prop.SESSION_EXPIRY, expiry_s)]))
        session = live.adapter.node.sessions.find("many")
        assert session is not None
        await until(lambda: bool(session.subscriptions))
        transport = live.connection().transport
        assert transport is not None
        transport.abort()  # as when a write says that nobody is there; nothing is read just now
        await until(lambda: session.connection is None)
        assert len(session.subscriptions) < MANY
        assert session.expiry_s == expiry_s
        assert live.adapter.node.sessions.count == (1 if expiry_s else 0)


async def test_a_fault_at_the_end_of_many_filters_subscribes_to_none(tmp_path: Path) -> None:
    """MQTT-3.8.3-4, and 3.1.1: MQTT-4.8.0-1."""
    filters = [f"a/{number}" for number in range(MANY)]
    async with running(tmp_path) as live:
        for version, bad in ((V5, ("$share/g/a", NO_LOCAL)), (V3_1_1, ("a#", 0))):
            client = await live.connected(f"c{version}", version=version, clean=False)
            client.send(
                wire.subscribe(1, [*((one, 1) for one in filters), bad], version=version)
            )
            ended = await client.ended_with()
            assert ended == ([(Kind.DISCONNECT, 0x82)] if version == V5 else [])
        assert live.adapter.node.sessions.subscription_count == 0
