"""One session's names and lists, however long, keep nothing from others."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from adapters.mqtt.inflight.outbox import RETAINED, Inflight
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.sessions.journal import (
    RECORD_BYTES_MAX,
    Leaving,
    decode_runs,
    encode_runs,
    encoded_bytes,
)
from adapters.mqtt.sessions.store import (
    APPEND_BYTES_MAX,
    RUN_KEY,
    STATE_KEY,
    run_key,
    state_key,
)
from adapters.mqtt.wire import AckRun, PacketType
from gateway.coalescer import Part
from gateway.errors import MessageTooLarge, StorageUnavailable
from gateway.sharded_stream import ShardedStream
from gateway.storage import OnDone
from gateway.streams import Item
from tests.adapters.mqtt.disk_faults import RARELY
from tests.adapters.mqtt.restartable_node import (
    Client,
    RestartableNode,
    payloads,
    restartable_node,
)
from tests.support import mqtt_wire as wire
from tests.support.mqtt_wire import Kind, Received
from tests.support.waiting import turns, until

NAME_BYTES = 60_000
LONG_GROUP = "$share/" + "g" * NAME_BYTES + "/t/#"
RECORD_ROOM = 1_024  # of what a put has beside keys and values


def stream(one: RestartableNode) -> ShardedStream:
    return one.adapter.node.context.store.stream


def found(one: RestartableNode, name: str) -> ClientSession:
    session = one.session(name)
    assert session is not None
    return session


def run_keys(one: RestartableNode) -> list[bytes]:
    return [key for key in stream(one).values if key[:1] == RUN_KEY]


def in_turns(count: int) -> Iterator[bytes]:
    """Yield publishes to two topics in turn: each is a run of its own."""
    for number in range(count):
        yield wire.publish(f"t/{number % 2}", b"%d" % number, qos=1, packet_id=number + 1)


async def publish_in_turns(publisher: Client, count: int) -> None:
    publisher.send(*in_turns(count))
    for _ in range(count):
        await publisher.receive(Kind.PUBACK)


def put_sizes(one: RestartableNode, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the bytes of each put from now on."""
    put = stream(one).put
    sizes: list[int] = []

    def measured(
        items: Sequence[Item], on_done: OnDone, *, beside: Sequence[Part] = ()
    ) -> None:
        size_bytes = sum(len(key) + len(value or b"") for key, value in items)
        sizes.append(size_bytes + sum(run.size_bytes for _, run in beside))
        put(items, on_done, beside=beside)

    monkeypatch.setattr(stream(one), "put", measured)
    return sizes


def too_large_for(
    one: RestartableNode, monkeypatch: pytest.MonkeyPatch, is_refused: Callable[[bytes], bool]
) -> None:
    """Make puts with some keys raise ``MessageTooLarge``."""
    put = stream(one).put

    def picky(items: Sequence[Item], on_done: OnDone, *, beside: Sequence[Part] = ()) -> None:
        if any(is_refused(key) for key, _ in items):
            raise MessageTooLarge("no record has room for that")
        put(items, on_done, beside=beside)

    monkeypatch.setattr(stream(one), "put", picky)


def refuse(_records: object, on_done: OnDone, _beside: object) -> None:
    """Write nothing down."""
    error = StorageUnavailable("the disk is full")
    asyncio.get_running_loop().call_soon(on_done, error)


def test_the_bytes_of_a_run_are_known_before_it_is_encoded() -> None:
    runs = [
        Inflight(0, 3, 7, 1_000, 1),
        Inflight(3, 1, 7, 1_003, 2, identifiers=(1, 2, 3), group="$share/ä/t"),
        Inflight(4, 2, RETAINED, -1, 1, retain=True, topics=(b"a/b", b"c")),
    ]
    for run in runs:
        none = len(encode_runs([]))
        assert encoded_bytes(run) == len(encode_runs([run])) - none


async def test_a_long_share_name_keeps_no_message_from_others(tmp_path: Path) -> None:
    """Each of 600 runs has the name: 36 MB in one turn, more than a record may have."""
    count = 600
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        member = await one.client("m", kept=True)
        await member.subscribe((LONG_GROUP, 1))
        others = [await one.client(f"s{qos}", kept=True) for qos in (1, 2)]
        for qos, other in enumerate(others, 1):
            await other.subscribe(("v/#", qos))
        publisher = await one.client("p")
        last = wire.publish("v/1", b"hello", qos=2, packet_id=count + 1)
        publisher.send(*in_turns(count), last, wire.ack(Kind.PUBREL, count + 1))
        for qos, other in enumerate(others, 1):
            message = await other.message()
            assert (message.payload, message.qos) == (b"hello", qos)
        assert len(await member.messages(count)) == count
        values = [stream(one).values[key] for key in run_keys(one)]
        assert max(map(len, values)) <= RECORD_BYTES_MAX
        assert found(one, "s2").journal._waiting == 0

        one.adapter.node.sessions.checkpoint()  # states that have passed what was sent
        await one.restart(crash=True)
        for name in ("s1", "s2"):
            back = await one.client(name, kept=True)
            assert payloads(await back.take(1)) == [b"hello"]
        again = await (await one.client("m", kept=True)).messages(count)
        assert sorted(map(int, payloads(again))) == list(range(count))


async def test_the_longest_runs_are_records_of_their_own(tmp_path: Path) -> None:
    """8,192 overlapping filters with identifiers, the longest name, a page of long topics."""
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        await one.client("s", kept=True)
        session = found(one, "s")
        added = []
        for number in range(200):
            run = session.outbox.push(
                2,
                1,
                partition_id=RETAINED,
                first_offset=-1,
                identifiers=tuple(range(1, 8_193)),
                group="$share/" + "g" * 65_000 + "/t",
                topics=(b"%05d" % number * 13_000, b"%05d" % number * 13_000),
            )
            session.journal.add(run, b"")
            added.append(run)
        await turns(3)
        stored = []
        for key in sorted(run_keys(one)):
            value = stream(one).values[key]
            assert len(value) <= RECORD_BYTES_MAX
            stored += decode_runs(int.from_bytes(key[-8:], "big"), value)
        assert stored == added


async def test_a_run_above_the_bound_is_a_record_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.mqtt.sessions.journal.RECORD_BYTES_MAX", 10)
    monkeypatch.setattr("adapters.mqtt.sessions.journal_writer.APPEND_BYTES_MAX", 10)
    monkeypatch.setattr("adapters.mqtt.sessions.store.APPEND_BYTES_MAX", 10)
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t/#", 1), ("$share/g/t/#", 1))
        await publish_in_turns(await one.client("p"), 5)
        sent = await subscriber.messages(10)
        assert len(run_keys(one)) == 10
        await one.restart(crash=True)
        again = await (await one.client("s", kept=True)).take(10)
        assert [(x.packet_id, x.payload) for x in again] == [
            (x.packet_id, x.payload) for x in sent
        ]


async def test_records_of_many_sessions_in_a_turn_are_several_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        members = [await one.client(f"m{at}", kept=True) for at in range(20)]
        for at, member in enumerate(members):
            await member.subscribe((f"$share/{at}" + "g" * NAME_BYTES + "/t/#", 1))
        sizes = put_sizes(one, monkeypatch)
        publisher = await one.client("p")
        await publisher.publish("t/1", [b"x"])
        for member in members:
            assert (await member.message()).payload == b"x"
        assert sum(sizes) > 2 * APPEND_BYTES_MAX
        assert max(sizes) <= APPEND_BYTES_MAX + RECORD_ROOM


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_record_that_cannot_be_written_is_refused_for_its_session_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        clients = [await one.client(name, kept=True) for name in ("a", "bad", "c")]
        for client in clients:
            await client.subscribe(("t", qos))
        publisher = await one.client("p")
        with monkeypatch.context() as patch:
            too_large_for(one, patch, lambda key: key.startswith(run_key("bad", 0)[:-8]))
            await publisher.publish("t", [b"x"], qos=qos)
            assert payloads(await clients[0].take(1)) == [b"x"]
            assert payloads(await clients[2].take(1)) == [b"x"]
            await one.gone("bad")
            await until(lambda: bool(found(one, "bad").journal.unkept))
            one.adapter.node.sessions.checkpoint()
            await turns(5)
        assert [found(one, name).journal._waiting for name in ("a", "bad", "c")] == [0] * 3
        assert list(found(one, "bad").journal.unkept) == [0]
        one.adapter.node.sessions.checkpoint()
        await until(lambda: not found(one, "bad").journal.unkept)
        await one.restart(crash=True)
        assert payloads(await (await one.client("bad", kept=True)).take(1)) == [b"x"]


async def test_a_checkpoint_goes_on_behind_a_state_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        names = ["a", "bad", "c"]
        for name in names:
            await one.client(name, kept=True)
        context = one.adapter.node.context
        await until(lambda: not context.dirty)
        written: list[bytes] = []
        with monkeypatch.context() as patch:

            def is_refused(key: bytes) -> bool:
                if key[:1] == STATE_KEY:
                    written.append(key)
                return key == state_key("bad")

            too_large_for(one, patch, is_refused)
            context.dirty.update(found(one, name) for name in names)
            one.adapter.node.sessions.checkpoint()
            await turns(5)
        assert sorted(written) == [state_key(name) for name in names]
        assert context.dirty == {found(one, "bad")}


async def test_much_that_was_refused_is_written_in_parts_before_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        member = await one.client("m", kept=True)
        await member.subscribe((LONG_GROUP, 1))
        publisher = await one.client("p")
        session = found(one, "m")
        context = one.adapter.node.context
        with monkeypatch.context() as patch:
            patch.setattr(context.store, "journal", refuse)
            await publish_in_turns(publisher, 40)
            await one.gone("m")
            await until(lambda: len(session.journal.unkept) > 3)
        sizes = put_sizes(one, monkeypatch)
        one.adapter.node.sessions.checkpoint()
        await until(lambda: not session.journal.unkept)
        assert sum(sizes) > 2 * APPEND_BYTES_MAX
        assert max(sizes) <= APPEND_BYTES_MAX + RECORD_ROOM
        await one.restart(crash=True)
        again = await (await one.client("m", kept=True)).take(40)
        assert sorted(map(int, payloads(again))) == list(range(40))


async def sent_one_by_one(publisher: Client, subscriber: Client, count: int) -> list[Received]:
    """Return messages that came each in a turn of its own, not acknowledged."""
    sent = []
    for _ in range(count):
        await publisher.publish("t", [b"x"])
        sent.append(await subscriber.message())
    return sent


async def test_records_under_a_long_name_are_forgotten_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "s" * NAME_BYTES
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client(name, kept=True)
        await subscriber.subscribe(("t", 1))
        publisher = await one.client("p")
        sent = await sent_one_by_one(publisher, subscriber, 30)
        assert len(run_keys(one)) == 30
        sizes = put_sizes(one, monkeypatch)
        for message in sent:
            await subscriber.acknowledge(message)
        await subscriber.silent()
        one.adapter.node.sessions.checkpoint()
        await until(lambda: not run_keys(one))
        await sent_one_by_one(publisher, subscriber, 30)
        await subscriber.leave()
        await one.gone(name)
        one.clock.advance(3_600_001)
        one.adapter.node.sessions.sweep(one.clock.monotonic_ms())
        await until(lambda: not stream(one).values)
        assert max(sizes) <= APPEND_BYTES_MAX + NAME_BYTES + RECORD_ROOM


async def test_a_session_that_is_over_is_not_written_when_a_part_of_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last records are on their way in parts when it ends; no state may follow them."""
    monkeypatch.setattr("adapters.mqtt.sessions.store.APPEND_BYTES_MAX", 10)
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("t/#", 1))
        session = found(one, "s")
        session.journal.unkept.update(dict.fromkeys((5, 6), b"x" * 20))
        one.adapter.node.context.dirty.add(session)
        one.adapter.node.sessions.checkpoint()
        subscriber.send(wire.disconnect(found=[(wire.Prop.SESSION_EXPIRY, 0)]))
        await until(lambda: one.session("s") is None)
        await turns(10)
        assert [key for key in stream(one).values if key[:1] == STATE_KEY] == []


async def test_a_record_that_is_refused_when_its_client_has_gone_is_written_later(
    tmp_path: Path,
) -> None:
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        await one.client("s", kept=True)
        session = found(one, "s")
        context = one.adapter.node.context
        context.dirty.clear()
        error = StorageUnavailable("the disk was full")
        session.journal.on_refused(Leaving(None, [], is_waiting=False), (0, b"x"), error)
        assert session in context.dirty


async def test_acknowledgements_of_one_read_bring_one_turn_of_retained_messages(
    tmp_path: Path,
) -> None:
    """Each says to go on, and what is journaled leaves at the end of the turn only."""
    count = 40
    async with restartable_node(tmp_path, mqtt=RARELY) as one:
        publisher = await one.client("p")
        for number in range(count):
            topic = f"{number:02}/" + "r" * NAME_BYTES
            await publisher.publish(topic, [b"%d" % number], retain=True)
        subscriber = await one.client("s", kept=True)
        await subscriber.subscribe(("+/" + "r" * NAME_BYTES, 1))
        session = found(one, "s")
        before = session.outbox.next_seq
        for _ in range(100):
            session.acked(AckRun(PacketType.PUBACK, [60_000]))
        assert session.outbox.next_seq - before <= 4, "two pages"
        assert payloads(await subscriber.messages(count)) == [b"%d" % at for at in range(count)]
