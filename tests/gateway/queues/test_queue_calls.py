"""Service ``queue``: a node asks the owner of a queue's partitions, in the process and over bytes.

The queue ``work`` lies in a shard of the second node, ``wide`` in shards of both.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from features.queue.model import Counts, Order, Outcome
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    NotOwner,
    OutcomeUnknown,
    Overloaded,
    PolicyViolation,
    TopicNotFound,
)
from gateway.placement import shard_of
from gateway.queues import queue_calls
from gateway.queues.asking_owners import browse_messages, count_messages, first_message
from gateway.queues.call_payloads import (
    NO_HOLDER,
    BrowsedMessages,
    BrowseMessages,
    CountMessages,
    Holder,
    PartitionCounts,
    PurgeMessages,
    QueueRef,
    SettledCounts,
    SettledOffsets,
    SettleMessages,
)
from gateway.queues.model import DEFAULT_GROUP, QueueRow, QueueSettings
from gateway.queues.queue import Queue
from gateway.queues.queue_calls import SERVICE
from gateway.shards.in_process import InProcessLink
from gateway.shards.model import NOT_OWNER, NoLink, OnReply, Reply, Request, Status
from gateway.topics.manager import Topic
from tests.gateway.queues.queue_node import is_fed, take
from tests.gateway.transfer.test_dead_letters_across import topic_in
from tests.gateway.transfer.test_transfers import UPPER
from tests.gateway.transfer.two_nodes import Cluster, ClusterNode, run_of, two_nodes
from tests.support.lossy_network import Chances
from tests.support.waiting import until

WIDE: Final = 16  # partitions, in all shards
CONNECTION: Final = Holder(node=1, connection=7, epoch=3)
VALUES: Final = [b"%d" % number for number in range(6)]
LINKS: Final = ["in process", "bytes"]


class Pair:
    """Two nodes; the first asks."""

    def __init__(self, cluster: Cluster, work: Topic, wide: Topic) -> None:
        self.cluster = cluster
        self.first, self.second = cluster.nodes
        self.work_topic, self.wide_topic = work, wide
        self.ref = QueueRef(work.uuid, DEFAULT_GROUP)
        self.shard = shard_of(work, 0, self.first.placement)

    def queue(self, node: ClusterNode, topic: Topic) -> Queue:
        queue = node.queues.find(topic.name)
        assert queue is not None
        return queue

    @property
    def work(self) -> Queue:
        """The queue at its owner."""
        return self.queue(self.second, self.work_topic)

    async def send(self, topic: Topic, number: int, *values: bytes) -> None:
        node = next(one for one in self.cluster.nodes if one.broker.owns(topic, number))
        partition = node.broker.partition(node.topics.get(topic.name), number)
        sent: list[object] = []
        for value in values:
            node.queues.coalescer.add(partition, run_of(value), sent.append)
        queue = self.queue(node, topic)
        await until(lambda: sent == [None] * len(values) and is_fed(queue))

    async def ask(self, payload: object, *, shard: int | None = None) -> object:
        calls = self.first.broker.shard_calls
        return await calls.ask(self.shard if shard is None else shard, SERVICE, payload)

    async def outcome(self, payload: object, *, shard: int | None = None) -> object:
        """Return the payload of the reply, or the class of the error."""
        try:
            return await self.ask(payload, shard=shard)
        except GatewayError as error:
            return type(error)

    def settling(
        self,
        first: int,
        end: int,
        outcome: Outcome = Outcome.ACK,
        *,
        attempt: int = 1,
        holder: Holder = CONNECTION,
    ) -> SettleMessages:
        return SettleMessages(
            self.ref, 0, holder, (SettledOffsets(first, end, attempt, outcome),)
        )

    async def leave_and_return(self) -> None:
        """The queue's shard leaves its owner, and comes back in another epoch."""
        for owner in (None, self.second):
            self.cluster.move(self.shard, owner)
            await self.cluster.settled()
        await until(lambda: is_fed(self.work))


@asynccontextmanager
async def pair_of(
    folder: Path, link: str = "in process", *, order: Order = Order.NONE, seed: int = 1
) -> AsyncIterator[Pair]:
    chances = Chances(0, 0, 0) if link == "bytes" else Chances(drop=0.2, double=0.4, late=0.1)
    async with two_nodes(folder, seed=seed, chances=chances) as cluster:
        work = await topic_in(cluster, "work", UPPER)
        wide = await cluster.topic("wide", WIDE, cleanup_policy="queue")
        for topic in (work, wide):
            settings = QueueSettings(order=order, lease_ms=600_000)
            row = QueueRow(
                topic.uuid,
                DEFAULT_GROUP,
                settings,
                {},
                {},
                owns_topic=False,
                created_unix_ms=0,
                changed_unix_ms=0,
            )
            await cluster.metadata.put_queue(row)
        await cluster.start()
        if link == "in process":
            in_process = InProcessLink()
            for node in cluster.nodes:
                in_process.join(node.node.node_id, node.broker.shard_calls)
                node.broker.shard_calls.link = in_process
        yield Pair(cluster, work, wide)


@pytest.fixture(params=LINKS)
async def pair(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    async with pair_of(tmp_path, request.param) as pair:
        yield pair


# --- what the owner answers


async def test_counts_come_from_all_owners(pair: Pair) -> None:
    for number in range(WIDE):
        await pair.send(pair.wide_topic, number, *VALUES[: number % 3])
    queue = pair.queue(pair.first, pair.wide_topic)

    found = sorted(await count_messages(pair.first.broker, queue))

    assert found == [
        PartitionCounts(number, number % 3, 0, 0, number % 3) for number in range(WIDE)
    ]


async def test_messages_come_partition_by_partition_from_all_owners(pair: Pair) -> None:
    for number in range(WIDE):
        await pair.send(pair.wide_topic, number, *VALUES[:2])
    broker, queue = pair.first.broker, pair.queue(pair.first, pair.wide_topic)

    found = await browse_messages(broker, queue, 7)
    assert [(one.number, one.record.offset) for one in found] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0),
    ]  # fmt: skip
    assert [one.record.value for one in found[:2]] == VALUES[:2]
    later = await browse_messages(broker, queue, 2, number=3, from_offset=1)
    assert [(one.number, one.record.offset) for one in later] == [(3, 1), (4, 0)]
    assert await first_message(broker, queue, 0) == found[0]
    assert len(await browse_messages(broker, queue, 1_000)) == 2 * WIDE


async def test_a_reply_is_cut_and_the_rest_is_asked_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_calls, "BROWSED_BYTES_MAX", 4)  # two messages with their key
    await pair.send(pair.work_topic, 0, *VALUES)

    reply = await pair.ask(BrowseMessages(pair.ref, 0, None, 5))
    assert isinstance(reply, BrowsedMessages)
    assert (len(reply.messages), reply.is_cut) == (2, True)
    queue = pair.queue(pair.first, pair.work_topic)
    found = await browse_messages(pair.first.broker, queue, 5)
    assert [one.record.value for one in found] == VALUES[:5]


async def test_a_holder_settles_what_it_has_in_flight(pair: Pair) -> None:
    await pair.send(pair.work_topic, 0, *VALUES)
    await take(pair.work, holder=CONNECTION.number)

    assert await pair.ask(pair.settling(0, 4)) == SettledCounts((4,))
    assert await pair.ask(pair.settling(4, 5, Outcome.RELEASE)) == SettledCounts((1,))
    assert await pair.ask(pair.settling(5, 6, Outcome.REJECT)) == SettledCounts((1,))
    assert pair.work.counts() == Counts(ready=1, in_flight=0, delayed=0)


@pytest.mark.parametrize(
    ("holder", "attempt"),
    [
        (CONNECTION._replace(node=2), 1),
        (CONNECTION._replace(connection=8), 1),
        (CONNECTION._replace(epoch=4), 1),
        (NO_HOLDER, 1),
        (CONNECTION, 2),
    ],
)
async def test_nobody_else_settles_it(pair: Pair, holder: Holder, attempt: int) -> None:
    await pair.send(pair.work_topic, 0, *VALUES)
    await take(pair.work, holder=CONNECTION.number)
    request = pair.settling(0, 6, attempt=attempt, holder=holder)
    assert await pair.ask(request) == SettledCounts((0,))
    assert pair.work.counts().in_flight == len(VALUES)


@pytest.mark.parametrize("outcome", [Outcome.ACK, Outcome.RELEASE, Outcome.REJECT])
async def test_a_second_settle_settles_nothing(pair: Pair, outcome: Outcome) -> None:
    await pair.send(pair.work_topic, 0, *VALUES)
    await take(pair.work, holder=CONNECTION.number)
    request = pair.settling(0, 3, outcome)
    assert await pair.ask(request) == SettledCounts((3,))
    await take(pair.work, holder=CONNECTION.number)  # what was released is there again
    before = pair.work.counts()
    assert await pair.ask(request) == SettledCounts((0,))
    assert pair.work.counts() == before


async def test_a_second_purge_drops_nothing_that_came_later(pair: Pair) -> None:
    await pair.send(pair.work_topic, 0, *VALUES)
    await take(pair.work, 2, holder=CONNECTION.number)
    purge = PurgeMessages(pair.ref, ((0, len(VALUES)),))
    assert await pair.ask(purge) is None
    assert pair.work.counts() == Counts(0, 0, 0)
    await pair.send(pair.work_topic, 0, b"later")
    assert await pair.ask(purge) is None
    assert pair.work.counts() == Counts(1, 0, 0)


async def test_a_purge_of_more_than_there_is_keeps_what_comes(pair: Pair) -> None:
    await pair.send(pair.work_topic, 0, *VALUES)
    await pair.ask(PurgeMessages(pair.ref, ((0, 1_000),)))
    await pair.send(pair.work_topic, 0, b"later")
    assert pair.work.counts() == Counts(1, 0, 0)


REFUSED: Final[dict[str, tuple[Callable[[Pair], object], type[GatewayError]]]] = {
    "no such queue": (
        lambda _: CountMessages(QueueRef(UUID(int=1), DEFAULT_GROUP), (0,)),
        TopicNotFound,
    ),
    "no such group": (
        lambda pair: CountMessages(QueueRef(pair.work_topic.uuid, "other"), (0,)),
        TopicNotFound,
    ),
    "no such partition": (lambda pair: CountMessages(pair.ref, (0, 1)), TopicNotFound),
    "no count": (lambda pair: BrowseMessages(pair.ref, 0, None, 0), InvalidRequest),
    "too large a count": (lambda pair: BrowseMessages(pair.ref, 0, 0, 1_001), InvalidRequest),
    "too large a range": (lambda pair: pair.settling(0, 1_000_001), InvalidRequest),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refusal_has_the_error_of_the_queue(pair: Pair, case: str) -> None:
    request, error = REFUSED[case]
    assert await pair.outcome(request(pair)) is error


async def test_a_partition_of_another_shard_is_refused(pair: Pair) -> None:
    ref = QueueRef(pair.wide_topic.uuid, DEFAULT_GROUP)
    upper = pair.cluster.numbers(pair.wide_topic, UPPER)
    shards = {shard_of(pair.wide_topic, n, pair.first.placement) for n in upper}
    assert len(shards) > 1
    request = CountMessages(ref, tuple(upper))
    assert await pair.outcome(request, shard=shards.pop()) is InvalidRequest


async def test_too_many_browses_are_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_calls, "BROWSES_MAX", 0)
    assert await pair.outcome(BrowseMessages(pair.ref, 0, None, 1)) is Overloaded


async def test_a_queue_in_key_order_is_not_purged_by_parts(tmp_path: Path) -> None:
    async with pair_of(tmp_path, order=Order.KEY) as pair:
        await pair.send(pair.work_topic, 0, *VALUES)
        assert await pair.outcome(PurgeMessages(pair.ref, ((0, 6),))) is PolicyViolation
        assert sum(pair.work.counts()) == len(VALUES)


# --- the shard moves


REQUESTS: Final[dict[str, Callable[[Pair], object]]] = {
    "count": lambda pair: CountMessages(pair.ref, (0,)),
    "browse": lambda pair: BrowseMessages(pair.ref, 0, None, 5),
    "purge": lambda pair: PurgeMessages(pair.ref, ((0, 6),)),
    "settle": lambda pair: pair.settling(0, 6, holder=NO_HOLDER),
}


class HeldLink:
    """Link whose calls stay on their way until the test lets them go on."""

    def __init__(self, pair: Pair) -> None:
        self._link = pair.first.broker.shard_calls.link
        self._held: list[tuple[int, Request, OnReply]] = []
        self.stream = self._link.stream
        pair.first.broker.shard_calls.link = self

    def call(self, node_id: int, request: Request, on_reply: OnReply) -> None:
        self._held.append((node_id, request, on_reply))

    def let_go(self) -> None:
        for call in self._held:
            self._link.call(*call)


@pytest.mark.parametrize("case", REQUESTS)
async def test_a_call_of_an_earlier_epoch_changes_nothing(pair: Pair, case: str) -> None:
    await pair.send(pair.work_topic, 0, *VALUES)
    await take(pair.work)  # by their lease: they are in flight after the return as well
    link = HeldLink(pair)
    replies: list[Reply] = []
    calls = pair.first.broker.shard_calls
    calls.call(pair.shard, SERVICE, REQUESTS[case](pair), replies.append)

    await pair.leave_and_return()
    link.let_go()
    await until(lambda: bool(replies))

    assert replies == [NOT_OWNER]
    assert pair.work.counts() == Counts(0, len(VALUES), 0)


@pytest.mark.parametrize("case", REQUESTS)
async def test_while_no_node_serves_the_shard_nobody_answers(pair: Pair, case: str) -> None:
    pair.cluster.move(pair.shard, None)
    assert await pair.outcome(REQUESTS[case](pair)) is NotOwner
    pair.cluster.move(pair.shard, pair.second)
    assert served(pair, case) == [NOT_OWNER], "it is being opened"


async def test_messages_that_were_read_as_their_shard_left_are_not_answered(pair: Pair) -> None:
    await pair.send(pair.work_topic, 0, *VALUES)
    replies = served(pair, "browse")
    pair.cluster.move(pair.shard, None)
    await until(lambda: bool(replies))
    assert replies == [NOT_OWNER]


@pytest.mark.parametrize("case", ["purge", "settle"])
async def test_a_change_that_has_begun_is_done_and_moves_along(pair: Pair, case: str) -> None:
    await pair.send(pair.work_topic, 0, *VALUES)
    await take(pair.work)
    replies = served(pair, case)
    await pair.leave_and_return()
    assert [one.status for one in replies] == [Status.DONE]
    assert pair.work.counts() == Counts(0, 0, 0)


def served(pair: Pair, case: str) -> list[Reply]:
    """Let the owner serve a request in this turn; return where its reply comes."""
    replies: list[Reply] = []
    epoch = pair.second.placement.epoch(pair.shard)
    request = Request(pair.shard, epoch, SERVICE, REQUESTS[case](pair))
    pair.second.broker.shard_calls.serve(request, replies.append)
    return replies


async def test_without_a_way_to_the_owner_it_is_named(pair: Pair) -> None:
    pair.first.broker.shard_calls.link = NoLink()
    with pytest.raises(NotOwner) as info:
        await pair.ask(CountMessages(pair.ref, (0,)))
    epoch = pair.first.placement.epoch(pair.shard)
    assert (info.value.owner_id, info.value.epoch) == (pair.second.node.node_id, epoch)


# --- frames are lost, doubled and late


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_unknown_is_sent_again_and_settled_once(
    tmp_path: Path, seed: int
) -> None:
    async with pair_of(tmp_path, "faults", seed=seed) as pair:
        values = [b"%d" % number for number in range(40)]
        await pair.send(pair.work_topic, 0, *values)
        await take(pair.work, len(values), holder=CONNECTION.number)
        unknown = 0
        for offset in range(len(values)):
            while await pair.outcome(pair.settling(offset, offset + 1)) is OutcomeUnknown:
                unknown += 1
        await pair.send(pair.work_topic, 0, *VALUES)
        counts = CountMessages(pair.ref, (0,))
        while (found := await pair.outcome(counts)) is OutcomeUnknown:
            unknown += 1

        assert found == ((PartitionCounts(0, len(VALUES), 0, 0, 46),),)
        assert pair.second.queues.counters.settled == len(values)
        assert unknown > 0
        assert pair.cluster.network.doubled > 0
