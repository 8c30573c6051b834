"""Incremental fetch sessions over real sockets: KIP-227's state machine, news and waits."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from adapters.kafka.errors import ErrorCode
from gateway.model import TopicName
from gateway.partition import Partition
from tests.adapters.kafka.running_adapter import Live, produce, running
from tests.support.batches import sample_batch
from tests.support.fetch_sessions import (
    BY_ID,
    BY_NAME,
    FINAL,
    FULL,
    Answer,
    session_answer,
    session_request,
)
from tests.support.kafka_wire import FETCH, produce_errors, request
from tests.support.waiting import until

ORDERS = TopicName("default", "orders")
A, B, C = ("orders", 0), ("orders", 1), ("orders", 2)
NEVER_MS = 300_000


class Consumer:
    """A client of one connection that fetches by sessions."""

    def __init__(self, live: Live, client: Any) -> None:
        self.live = live
        self.client = client

    def send(self, *args: Any, version: int = BY_NAME, **kwargs: Any) -> None:
        body = session_request(version, *args, **kwargs)
        self.client.send(request(FETCH, version, 1, body))

    async def answer(self, version: int = BY_NAME) -> Answer:
        return session_answer(version, (await self.client.answer())[1])

    async def fetch(self, *args: Any, version: int = BY_NAME, **kwargs: Any) -> Answer:
        self.send(*args, version=version, **kwargs)
        return await self.answer(version)

    async def open(self, *keys: Any, at: int = 0) -> int:
        """Make a session and return its id."""
        answer = await self.fetch(0, FULL, dict.fromkeys(keys, at))
        assert answer.error_code == 0
        assert list(answer.partitions) == list(keys)
        assert answer.session_id
        return answer.session_id

    async def open_and_wait(self, *keys: Any, bytes_min: int = 1) -> int:
        """Make a session, send a request that waits for batches, and return the session's id."""
        session = await self.open(*keys)
        self.send(session, 1, wait_ms=NEVER_MS, bytes_min=bytes_min)
        await until(lambda: self.live.adapter.requests[FETCH] == 2)
        return session


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with running(tmp_path, partitions=3) as found:
        yield found


@pytest.fixture
async def consumer(live: Live) -> Consumer:
    return Consumer(live, await live.client())


def partition_of(live: Live, number: int = 0) -> Partition:
    return live.kernel.broker.partition(live.kernel.topics.get(ORDERS), number)


async def append(live: Live, number: int = 0, value: bytes = b"v") -> bytes:
    """Produce a batch and return its bytes as they are stored."""
    client = await live.client()
    data = sample_batch(value=value)
    client.send(produce(1, data, number=number))
    assert produce_errors((await client.answer())[1])[0][0] == 0
    return bytes(data)


async def test_an_incremental_response_has_only_the_news(
    live: Live, consumer: Consumer
) -> None:
    session = await consumer.open(A, B, C)
    nothing = await consumer.fetch(session, 1)
    await append(live, 1)
    news = await consumer.fetch(session, 2)
    again = await consumer.fetch(session, 3)
    read_on = await consumer.fetch(session, 4, {B: 1})
    assert nothing == Answer(0, session, {})
    assert list(news.partitions) == [B]
    assert news.partitions[B].records
    assert again == news  # the position has not changed
    assert read_on == Answer(0, session, {})


async def test_a_wait_ends_with_an_append_to_any_partition(
    live: Live, consumer: Consumer
) -> None:
    await consumer.open_and_wait(A, B)
    await append(live, 1)
    assert list((await consumer.answer()).partitions) == [B]


async def test_a_wait_for_many_bytes_counts_those_of_all_appends(
    live: Live, consumer: Consumer
) -> None:
    await consumer.open_and_wait(A, B, bytes_min=1_500)
    for number in (0, 1, 0):
        await append(live, number, bytes(500))
    assert list((await consumer.answer()).partitions) == [A, B]


async def test_an_idle_partition_registers_once(live: Live, consumer: Consumer) -> None:
    session = await consumer.open(A, B)
    before = set(partition_of(live, 1).waiters)
    await append(live, 0)
    await consumer.fetch(session, 1)
    await consumer.fetch(session, 2, {A: 1})
    assert len(before) == 1
    assert set(partition_of(live, 1).waiters) == before


async def test_a_session_without_requests_costs_one_event(
    live: Live, consumer: Consumer
) -> None:
    await consumer.open(A)
    assert partition_of(live).waiters
    await append(live)
    assert not partition_of(live).waiters


async def test_forgotten_partitions_are_not_read_any_more(
    live: Live, consumer: Consumer
) -> None:
    session = await consumer.open(A, B)
    await append(live, 0)
    await append(live, 1)
    answer = await consumer.fetch(session, 1, forgotten=[A, C])
    assert list(answer.partitions) == [B]
    assert not partition_of(live).waiters


async def test_an_added_partition_is_sent_once(consumer: Consumer) -> None:
    session = await consumer.open(A)
    added = await consumer.fetch(session, 1, {B: 0})
    idle = await consumer.fetch(session, 2)
    assert list(added.partitions) == [B]
    assert idle == Answer(0, session, {})


async def test_a_session_without_partitions_ends(live: Live, consumer: Consumer) -> None:
    session = await consumer.open(A)
    ended = await consumer.fetch(session, 1, forgotten=[A])
    gone = await consumer.fetch(session, 2)
    assert ended == Answer(0, 0, {})
    assert gone == Answer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, {})
    assert not partition_of(live).waiters


async def test_a_partition_added_and_forgotten_at_once_is_fetched_without_a_session(
    consumer: Consumer,
) -> None:
    session = await consumer.open(A)
    answer = await consumer.fetch(session, 1, {B: 0}, forgotten=[A, B])
    assert (answer.session_id, list(answer.partitions)) == (0, [B])


@pytest.mark.parametrize("epoch", [2, 7, -2])
async def test_a_wrong_epoch_is_refused_and_the_session_stays(
    consumer: Consumer, epoch: int
) -> None:
    session = await consumer.open(A)
    wrong = await consumer.fetch(session, epoch)
    right = await consumer.fetch(session, 1)
    assert wrong == Answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, {})
    assert right == Answer(0, session, {})


@pytest.mark.parametrize(("session", "epoch"), [(0, 1), (0, -2), (77, 1), (-5, 3)])
async def test_an_unknown_session_is_not_found(
    consumer: Consumer, session: int, epoch: int
) -> None:
    answer = await consumer.fetch(session, epoch)
    assert answer == Answer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, {})


@pytest.mark.parametrize("epoch", [FULL, FINAL])
async def test_a_full_fetch_ends_the_session_it_names(
    live: Live, consumer: Consumer, epoch: int
) -> None:
    first = await consumer.open(A, B)
    answer = await consumer.fetch(first, epoch, {C: 0})
    assert list(answer.partitions) == [C]
    assert bool(answer.session_id) == (epoch == FULL)
    assert answer.session_id != first
    gone = await consumer.fetch(first, 1)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not partition_of(live).waiters


async def test_names_and_ids_do_not_mix(live: Live, consumer: Consumer) -> None:
    topic_id = live.kernel.topics.get(ORDERS).uuid
    session = await consumer.open(A)
    mixed = await consumer.fetch(session, 1, version=BY_ID)
    kept = await consumer.fetch(session, 1)
    by_id = await consumer.fetch(0, FULL, {(topic_id, 0): 0}, version=BY_ID)
    mixed_too = await consumer.fetch(by_id.session_id, 1)
    assert mixed == Answer(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0, {})
    assert kept == Answer(0, session, {})
    assert mixed_too == Answer(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0, {})


async def test_partitions_take_turns_under_a_byte_limit(live: Live, consumer: Consumer) -> None:
    session = await consumer.open(A, B, C)
    for number in (0, 1, 2):
        await append(live, number)
    turns = []
    for epoch in range(1, 7):
        answer = await consumer.fetch(session, epoch, bytes_max=1)
        turns += [key for key, part in answer.partitions.items() if part.records]
    assert turns == [A, B, C, A, B, C]


async def test_an_error_is_sent_each_time_until_it_has_gone(consumer: Consumer) -> None:
    session = await consumer.open(A, B)
    over = await consumer.fetch(session, 1, {A: 5}, wait_ms=NEVER_MS)
    again = await consumer.fetch(session, 2, wait_ms=NEVER_MS)
    right = await consumer.fetch(session, 3, {A: 0})
    quiet = await consumer.fetch(session, 4)
    for answer in (over, again):
        assert {key: part.error_code for key, part in answer.partitions.items()} == {
            A: ErrorCode.OFFSET_OUT_OF_RANGE
        }
    assert right.partitions[A].error_code == 0
    assert quiet == Answer(0, session, {})


async def test_a_moved_log_start_is_news(live: Live, consumer: Consumer) -> None:
    await append(live)
    session = await consumer.open(A, B, at=0)
    await consumer.fetch(session, 1, {A: 1})
    live.kernel.broker.truncate_before(partition_of(live), 1, lambda _error: None)
    answer = await consumer.fetch(session, 2)
    assert list(answer.partitions) == [A]
    assert answer.partitions[A].log_start_offset == 1
    assert await consumer.fetch(session, 3) == Answer(0, session, {})


async def test_a_topic_that_is_deleted_and_made_again_is_read_again(
    live: Live, consumer: Consumer
) -> None:
    session = await consumer.open_and_wait(A, B)
    await live.kernel.topics.delete(ORDERS)
    gone = await consumer.answer()
    await live.kernel.topics.create(ORDERS, partitions=2)
    await append(live, 1)
    back = await consumer.fetch(session, 2)
    assert {part.error_code for part in gone.partitions.values()} == {3}
    assert list(gone.partitions) == [A, B]
    assert [(key, part.error_code) for key, part in back.partitions.items()] == [(A, 0), (B, 0)]
    assert back.partitions[B].records


async def test_a_deleted_topic_id_stays_unknown(live: Live, consumer: Consumer) -> None:
    topic_id: UUID = live.kernel.topics.get(ORDERS).uuid
    key = topic_id, 0
    session = (await consumer.fetch(0, FULL, {key: 0}, version=BY_ID)).session_id
    await live.kernel.topics.delete(ORDERS)
    await live.kernel.topics.create(ORDERS, partitions=2)
    answer = await consumer.fetch(session, 1, version=BY_ID)
    assert answer.partitions[key].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_unknown_partitions_alone_do_not_wait(consumer: Consumer) -> None:
    session = await consumer.open(("orders", 9))
    answer = await consumer.fetch(session, 1, wait_ms=NEVER_MS)
    assert [part.error_code for part in answer.partitions.values()] == [3]


async def test_a_session_survives_its_connection(live: Live, consumer: Consumer) -> None:
    session = await consumer.open_and_wait(A)
    consumer.client.writer.transport.abort()
    await until(lambda: len(live.adapter.listener.connections) == 0)
    other = Consumer(live, await live.client())
    await append(live)
    answer = await other.fetch(session, 2)
    assert list(answer.partitions) == [A]


async def test_a_newer_request_refuses_the_one_that_waits(
    live: Live, consumer: Consumer
) -> None:
    session = await consumer.open_and_wait(A)
    other = Consumer(live, await live.client())
    newer = await other.fetch(session, 2)
    older = await consumer.answer()
    assert older == Answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session, {})
    assert newer == Answer(0, session, {})


async def test_a_full_fetch_elsewhere_ends_the_one_that_waits(
    live: Live, consumer: Consumer
) -> None:
    session = await consumer.open_and_wait(A)
    other = Consumer(live, await live.client())
    await other.fetch(session, FINAL)
    assert (await consumer.answer()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_drain_answers_a_session_that_waits(live: Live, consumer: Consumer) -> None:
    session = await consumer.open_and_wait(A)
    await live.adapter.drain(60)
    assert await consumer.answer() == Answer(0, session, {})


async def test_without_room_every_fetch_is_full(tmp_path: Path) -> None:
    async with running(tmp_path, kafka={"fetch_sessions_max": 0}) as live:
        consumer = Consumer(live, await live.client())
        for _ in range(2):
            answer = await consumer.fetch(0, FULL, {A: 0})
            assert (answer.session_id, list(answer.partitions)) == (0, [A])
        assert not partition_of(live).waiters


async def test_a_session_that_grows_over_the_bound_ends(tmp_path: Path) -> None:
    async with running(tmp_path, kafka={"fetch_session_partitions_max": 1}) as live:
        consumer = Consumer(live, await live.client())
        session = await consumer.open(A)
        grown = await consumer.fetch(session, 1, {B: 0})
        too_large = await consumer.fetch(0, FULL, {A: 0, B: 0})
        assert grown == Answer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, {})
        assert (too_large.session_id, len(too_large.partitions)) == (0, 2)
        assert live.adapter.node.fetch_sessions.partition_count == 0
