"""Calls and streams of shards: own, another node's in this process, and over lossy bytes."""

import asyncio
from collections import Counter
from functools import partial

import pytest

from gateway.errors import InvalidRequest, NotOwner, Overloaded, PolicyViolation
from gateway.placement import Node
from gateway.shards import calls as calls_module
from gateway.shards.calls import ShardCalls
from gateway.shards.in_process import InProcessLink
from gateway.shards.model import (
    DONE,
    NOT_OWNER,
    UNKNOWN,
    Codec,
    OnReply,
    Reply,
    Request,
    Room,
    Sink,
    Status,
    refused,
)
from gateway.testing.placement import SettablePlacement
from tests.support.lossy_network import Chances, LossyNetwork
from tests.support.waiting import until

SHARDS = 4
FIRST, SECOND = Node(1, "127.0.0.1"), Node(2, "127.0.0.2")


class Bytes:
    """Codec of payloads that are bytes."""

    def encode_request(self, payload: object) -> bytes:
        assert isinstance(payload, bytes)
        return payload

    def decode_request(self, data: bytes) -> object:
        return data

    encode_reply = encode_request
    decode_reply = decode_request


class Echo:
    """Service that replies with its request, or keeps the reply back; streams count."""

    codec: Codec = Bytes()

    def __init__(self) -> None:
        self.served: list[tuple[Room, object]] = []
        self.kept_back: list[OnReply] = []
        self.is_held = False
        self.streams: list[Counting] = []

    def call(self, room: Room, payload: object, on_reply: OnReply) -> None:
        self.served.append((room, payload))
        if payload == b"refuse":
            raise PolicyViolation("as asked")
        if self.is_held:
            self.kept_back.append(on_reply)
        else:
            on_reply(DONE._replace(payload=payload))

    def open_stream(self, room: Room, payload: object, sink: Sink) -> "Counting":
        del room
        if payload == b"refuse":
            raise PolicyViolation("as asked")
        assert isinstance(payload, bytes)
        self.streams.append(Counting(sink, int(payload)))
        return self.streams[-1]


class Counting:
    """Stream of the numbers up to a last one."""

    def __init__(self, sink: Sink, last: int) -> None:
        self._sink = sink
        self._last = last
        self._next = 1
        self.is_closed = False

    def on_credit(self) -> None:
        while self._sink.credit and self._next <= self._last:
            self._sink.send(b"%d" % self._next)
            self._next += 1
        if self._next > self._last:
            self._sink.end(DONE)

    def on_closed(self) -> None:
        self.is_closed = True


class Collected:
    """Receiver that keeps what comes."""

    def __init__(self) -> None:
        self.items: list[object] = []
        self.ends: list[Reply] = []

    def on_item(self, item: object) -> None:
        assert not self.ends
        self.items.append(item)

    def on_end(self, reply: Reply) -> None:
        self.ends.append(reply)

    def has_more(self, count: int) -> bool:
        return len(self.items) > count or bool(self.ends)


class Pair:
    """Two nodes: shards 0 and 1 are the first's, 2 and 3 the second's."""

    def __init__(self) -> None:
        self.placements = [
            SettablePlacement(SHARDS, epoch=5, node=FIRST, other=SECOND),
            SettablePlacement(SHARDS, epoch=5, node=SECOND, other=FIRST),
        ]
        self.first, self.second = (ShardCalls(placement) for placement in self.placements)
        self.placements[0].give({2, 3})
        self.placements[1].give({0, 1})
        self.placements[1].renew({2, 3})
        self.placements[0].renew({0, 1})
        self.echo, self.own_echo = Echo(), Echo()
        self.second.register("echo", self.echo)
        self.first.register("echo", self.own_echo)

    def in_process(self) -> InProcessLink:
        link = InProcessLink()
        for node, shards in ((FIRST, self.first), (SECOND, self.second)):
            link.join(node.node_id, shards)
            shards.link = link
        return link

    def lossy(self, seed: int, chances: Chances) -> LossyNetwork:
        network = LossyNetwork(seed, chances)
        for node, shards in ((FIRST, self.first), (SECOND, self.second)):
            network.join(node.node_id, shards)
        return network


async def ask(shards: ShardCalls, shard: int, payload: object, service: str = "echo") -> Reply:
    got: list[Reply] = []
    shards.call(shard, service, payload, got.append)
    assert not got, "never before the call returns"
    await until(lambda: bool(got))
    return got[0]


async def test_a_shard_of_this_node_has_a_room_with_its_epoch() -> None:
    pair = Pair()
    assert pair.first.local(1) == Room(1, 6)
    assert pair.first.local(2) is None
    pair.placements[0].take({2})
    pair.placements[0].give({1})
    assert pair.first.local(1) is None
    assert pair.first.local(2) == Room(2, 7)


async def test_a_call_of_an_own_shard_passes_the_payload_as_it_is() -> None:
    pair, payload = Pair(), object()
    reply = await ask(pair.first, 0, payload)
    assert reply.payload is payload
    assert pair.own_echo.served == [(Room(0, 6), payload)]


async def test_a_call_within_a_process_passes_the_payload_as_it_is() -> None:
    pair, payload = Pair(), object()
    pair.in_process()
    reply = await ask(pair.first, 2, payload)
    assert reply.status is Status.DONE
    assert reply.payload is payload
    assert pair.echo.served == [(Room(2, 6), payload)]


@pytest.mark.parametrize("shard", [0, 2])
async def test_the_service_and_its_errors_refuse(shard: int) -> None:
    pair = Pair()
    pair.in_process()
    reply = await ask(pair.first, shard, b"refuse")
    assert reply.status is Status.REFUSED
    assert isinstance(reply.as_error(), PolicyViolation)
    assert isinstance((await ask(pair.first, shard, b"", "other")).error, InvalidRequest)


async def test_a_node_that_does_not_own_the_shard_in_the_epoch_refuses() -> None:
    pair = Pair()
    pair.in_process()
    pair.placements[1].renew({2})  # the first node has not heard of it
    pair.placements[1].give({3})
    assert await ask(pair.first, 2, b"") == NOT_OWNER
    assert await ask(pair.first, 3, b"") == NOT_OWNER
    assert isinstance(NOT_OWNER.as_error(), NotOwner)
    assert pair.echo.served == []
    answers: list[Reply] = []
    pair.second.serve(Request(SHARDS, 5, "echo", b""), answers.append)
    assert answers == [NOT_OWNER]


async def test_without_an_owner_or_a_link_nothing_is_sent() -> None:
    pair = Pair()
    assert await ask(pair.first, 2, b"") == NOT_OWNER
    pair.in_process()
    pair.placements[0].abandon({2})
    assert await ask(pair.first, 2, b"") == NOT_OWNER
    assert pair.echo.served == []


async def test_what_a_node_has_not_answered_when_it_leaves_is_unknown() -> None:
    pair = Pair()
    link = pair.in_process()
    pair.echo.is_held = True
    got: list[Reply] = []
    pair.first.call(2, "echo", b"", got.append)
    await until(lambda: bool(pair.echo.kept_back))
    link.leave(SECOND.node_id)
    await until(lambda: bool(got))
    pair.echo.kept_back[0](DONE)  # too late
    assert got == [UNKNOWN]
    assert await ask(pair.first, 2, b"") == NOT_OWNER


async def test_calls_to_other_nodes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "CALLS_MAX", 1)
    pair = Pair()
    pair.in_process()
    pair.echo.is_held = True
    got: list[Reply] = []
    pair.first.call(2, "echo", b"", got.append)
    assert isinstance((await ask(pair.first, 3, b"")).error, Overloaded)
    await until(lambda: bool(pair.echo.kept_back))
    pair.echo.kept_back[0](DONE)
    await until(lambda: bool(got))
    pair.echo.is_held = False
    assert (await ask(pair.first, 3, b"")).status is Status.DONE


@pytest.mark.parametrize("shard", [0, 2])
async def test_a_stream_sends_what_there_is_credit_for_and_ends(shard: int) -> None:
    pair = Pair()
    pair.in_process()
    receiver = Collected()
    stream = pair.first.stream(shard, "echo", b"5", receiver, credit=2)
    assert receiver.items == []
    await until(lambda: len(receiver.items) == 2)
    echo = pair.own_echo if shard == 0 else pair.echo
    await asyncio.wait([asyncio.ensure_future(ask(pair.first, 0, b"a turn"))])
    assert receiver.items == [b"1", b"2"]
    stream.grant(2)
    await until(lambda: len(receiver.items) == 4)
    stream.grant(9)
    await until(lambda: bool(receiver.ends))
    assert receiver.items == [b"1", b"2", b"3", b"4", b"5"]
    assert receiver.ends == [DONE]
    assert not echo.streams[0].is_closed


@pytest.mark.parametrize("shard", [0, 2])
async def test_a_closed_stream_receives_nothing_more(shard: int) -> None:
    pair = Pair()
    pair.in_process()
    receiver = Collected()
    stream = pair.first.stream(shard, "echo", b"5", receiver, credit=1)
    await until(lambda: bool(receiver.items))
    stream.close()
    stream.grant(4)
    await ask(pair.first, shard, b"a turn")
    echo = pair.own_echo if shard == 0 else pair.echo
    assert echo.streams[0].is_closed
    assert (receiver.items, receiver.ends) == ([b"1"], [])


async def test_a_stream_is_refused_by_the_service_or_for_the_owner() -> None:
    pair = Pair()
    link = pair.in_process()
    for shard in (0, 2):
        receiver = Collected()
        pair.first.stream(shard, "echo", b"refuse", receiver, credit=1)
        assert receiver.ends == []
        await until(partial(bool, receiver.ends))
        assert isinstance(receiver.ends[0].error, PolicyViolation)
    pair.placements[1].renew({2})
    receiver = Collected()
    pair.first.stream(2, "echo", b"5", receiver, credit=1)
    await until(lambda: bool(receiver.ends))
    assert receiver.ends == [NOT_OWNER]
    receiver = Collected()
    pair.first.stream(3, "echo", b"5", receiver, credit=1)
    await until(lambda: bool(receiver.items))
    link.leave(SECOND.node_id)
    await until(lambda: bool(receiver.ends))
    assert receiver.ends == [UNKNOWN]
    assert pair.echo.streams[-1].is_closed


async def answers_of(seed: int, chances: Chances, calls: int) -> tuple[list[Reply], Pair]:
    pair = Pair()
    pair.lossy(seed, chances)
    got: dict[int, Reply] = {}
    for number in range(calls):
        payload = b"refuse" if number % 10 == 9 else b"%d" % number
        pair.first.call(2, "echo", payload, partial(got.__setitem__, number))
    await until(lambda: len(got) == calls)
    return [got[number] for number in range(calls)], pair


async def test_a_faultless_network_carries_payloads_and_errors() -> None:
    replies, _ = await answers_of(1, Chances(0, 0, 0), 20)
    for number, reply in enumerate(replies):
        if number % 10 == 9:
            assert reply.status is Status.REFUSED
            assert str(reply.error) == "as asked"
            assert isinstance(reply.error, PolicyViolation)
        else:
            assert reply == Reply(Status.DONE, b"%d" % number)


async def test_a_lossy_network_answers_each_call_once_and_some_as_unknown() -> None:
    replies, pair = await answers_of(7, Chances(), 200)
    statuses = Counter(reply.status for reply in replies)
    assert set(statuses) == {Status.DONE, Status.REFUSED, Status.UNKNOWN}
    served = Counter(payload for _, payload in pair.echo.served)
    assert max(served.values()) > 1, "a frame came twice"
    for number, reply in enumerate(replies):
        if reply.status is Status.DONE:
            assert served[b"%d" % number] >= 1
    unknown = [number for number, reply in enumerate(replies) if reply.status is Status.UNKNOWN]
    assert {served[b"%d" % number] > 0 for number in unknown} == {True, False}


async def test_a_seed_gives_the_same_faults_again() -> None:
    first, _ = await answers_of(3, Chances(), 100)
    again, _ = await answers_of(3, Chances(), 100)
    other, _ = await answers_of(4, Chances(), 100)
    statuses = [[reply.status for reply in replies] for replies in (first, again, other)]
    assert statuses[0] == statuses[1] != statuses[2]


@pytest.mark.parametrize("seed", range(20))
async def test_a_lossy_stream_has_all_items_in_order_or_is_unknown(seed: int) -> None:
    pair = Pair()
    pair.lossy(seed, Chances(0.02, 0.1, 0))
    receiver = Collected()
    stream = pair.first.stream(2, "echo", b"6", receiver, credit=1)
    while not receiver.ends:
        count = len(receiver.items)
        await until(partial(receiver.has_more, count))
        stream.grant(1)
    assert receiver.items == [b"%d" % (at + 1) for at in range(len(receiver.items))]
    assert receiver.ends[0].status in {Status.DONE, Status.UNKNOWN}
    if receiver.ends[0].status is Status.DONE:
        assert len(receiver.items) == 6


def test_a_refusal_keeps_its_error() -> None:
    error = PolicyViolation("no")
    assert refused(error).as_error() is error
