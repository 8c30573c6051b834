"""Produce over real sockets: storage failures, duplicates, authorization, closed connections."""

import struct
from pathlib import Path

import pytest

from gateway.auth.ports import Operation, PatternKind, ResourceType, Rule
from gateway.auth.rules import RuleBook
from gateway.model import TopicName
from tests.adapters.kafka.running_adapter import MIB, produce, running
from tests.support.batches import NOW_UNIX_MS, sample_batch
from tests.support.kafka_wire import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    fetch_body,
    fetch_records,
    produce_body,
    produce_errors,
    request,
)
from tests.support.waiting import until

ORDERS = TopicName("default", "orders")


async def test_an_acks_0_error_that_comes_later_closes_its_connection_alone(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        silent, other = await live.client(), await live.client()
        live.storage.held = True
        good, bad = bytes(sample_batch()), bytes(sample_batch()[:-1])
        body = produce_body([("orders", 0, good), ("orders", 1, bad)], acks=0)
        silent.send(request(PRODUCE, 3, 1, body))
        await until(lambda: live.storage.enqueued == 1)
        other.send(produce(2, sample_batch()))
        await until(lambda: live.storage.enqueued == 2)
        live.storage.release()
        assert produce_errors((await other.answer())[1]) == [(0, 1)]
        assert await silent.ended()
        assert live.adapter.listener.faults["bug"] == 0


async def test_nothing_is_appended_after_an_acks_0_error(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        bad = sample_batch()[:-1]
        client.send(produce(1, bad, acks=0), produce(2, sample_batch(), acks=0))
        assert await client.ended()
        assert live.storage.enqueued == 0


async def test_a_partition_that_is_named_twice_is_refused_the_second_time(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        batch = bytes(sample_batch(count=10, producer_id=9, producer_epoch=0, base_sequence=0))
        body = produce_body([("orders", 0, batch), ("orders", 1, batch), ("orders", 0, batch)])
        client.send(request(PRODUCE, 3, 1, body))
        assert produce_errors((await client.answer())[1]) == [(0, 0), (0, 0), (42, -1)]


async def test_a_topic_deleted_before_its_batch_is_kept_is_answered_all_the_same(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        live.storage.held = True
        client.send(produce(1, sample_batch()))
        await until(lambda: live.storage.enqueued == 1)
        await live.kernel.topics.delete(ORDERS)
        client.send(produce(2, sample_batch()))
        live.storage.release()
        assert produce_errors((await client.answer())[1]) == [(0, 0)]
        assert produce_errors((await client.answer())[1]) == [(3, -1)]


@pytest.mark.parametrize("timestamp_unix_ms", [NOW_UNIX_MS + 86_400_000, 1])
async def test_with_log_append_time_the_producers_clock_does_not_matter(
    tmp_path: Path, timestamp_unix_ms: int
) -> None:
    async with running(tmp_path) as live:
        configs = {
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "1000",
        }
        await live.kernel.topics.create(TopicName("default", "stamped"), configs=configs)
        client = await live.client()
        batch = bytes(sample_batch(timestamp_unix_ms=timestamp_unix_ms))
        client.send(request(PRODUCE, 3, 1, produce_body([("stamped", 0, batch)])))
        _, body = await client.answer()
        assert produce_errors(body) == [(0, 0)]
        append_time_ms = struct.unpack_from(">q", body, len(body) - 12)[0]
        assert append_time_ms == live.kernel.clock.unix_ms()


async def test_names_cannot_be_probed_without_a_right(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        rules = live.kernel.authorizer
        assert isinstance(rules, RuleBook)
        rule = Rule("alice", Operation.ALL, ResourceType.TOPIC, PatternKind.ANY, "")
        await rules.add_rules([rule])
        client = await live.client()
        batch = bytes(sample_batch())
        body = produce_body([("orders", 0, batch), ("gone", 0, batch)])
        client.send(request(PRODUCE, 3, 1, body))
        assert [code for code, _ in produce_errors((await client.answer())[1])] == [29, 29]
        for topic in ("orders", "gone"):
            client.send(request(FETCH, 4, 2, fetch_body(topic, 0, 0, wait_ms=0)))
            assert fetch_records((await client.answer())[1])[0] == 29


# --- bounds


async def test_a_full_log_takes_one_append_too_many_and_not_one_of_each(
    tmp_path: Path,
) -> None:
    broker = {"wal_queued_bytes_max": MIB, "wal_queued_bytes_low": MIB // 2}
    async with running(tmp_path, broker=broker) as live:
        live.storage.held = True
        batch = sample_batch(value=bytes(MIB - 2048))
        clients = [await live.client() for _ in range(4)]
        clients[0].send(produce(0, batch), produce(0, batch))
        await until(lambda: live.storage.enqueued == 2)
        for client in clients[1:]:
            client.send(produce(1, batch))
        held = live.kernel.broker.writer.held
        await until(lambda: len(held) == 3)
        assert live.storage.enqueued == 2
        live.storage.release()
        for client in clients:
            assert produce_errors((await client.answer())[1])[0][0] == 0


async def test_requests_that_wait_behind_a_fetch_are_bounded_in_bytes(tmp_path: Path) -> None:
    async with running(tmp_path, kafka={"unacknowledged_bytes_max": MIB}) as live:
        client = await live.client()
        batch = sample_batch(value=bytes(256 * 1024))
        wait = request(FETCH, 4, 0, fetch_body("orders", 1, 0, wait_ms=60_000))
        client.send(wait, *(produce(n, batch) for n in range(1, 33)))
        await until(lambda: live.connection().is_held_but_for("requests"))
        assert live.adapter.node.request_budget.bytes_taken < 2 * MIB
        other = await live.client()
        other.send(produce(99, sample_batch(), number=1))
        assert [(await client.answer())[0] for _ in range(33)] == list(range(33))
        await until(lambda: live.adapter.node.request_budget.bytes_taken == 0)


async def test_a_large_request_that_does_not_come_keeps_no_other_waiting(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, kafka={"request_bytes_budget": MIB}) as live:
        frame = produce(1, sample_batch(value=bytes(MIB - 4096)))
        first, second = await live.client(), await live.client()
        budget = live.adapter.node.request_budget
        first.send(frame[:100])
        await until(lambda: 0 < budget.bytes_taken < MIB // 4)
        second.send(frame)
        assert produce_errors((await second.answer())[1]) == [(0, 0)]
        first.send(frame[100:])
        assert produce_errors((await first.answer())[1]) == [(0, 1)]
        assert (budget.bytes_taken, budget.waiting_count) == (0, 0)


async def test_half_read_requests_take_turns_when_the_budget_is_full(tmp_path: Path) -> None:
    async with running(tmp_path, kafka={"request_bytes_budget": MIB}) as live:
        frame = produce(1, sample_batch(value=bytes(MIB - 4096)))
        clients = [await live.client() for _ in range(5)]
        budget = live.adapter.node.request_budget
        for client in clients:
            client.send(frame[: MIB // 2])
        await until(lambda: budget.waiting_count >= len(clients) - 2)
        for client in reversed(clients):
            client.send(frame[MIB // 2 :])
        offsets = [produce_errors((await client.answer())[1])[0] for client in clients]
        assert sorted(offsets) == [(0, number) for number in range(len(clients))]
        assert (budget.bytes_taken, budget.waiting_count, budget.runner) == (0, 0, None)


async def test_who_stops_amid_a_request_that_others_wait_for_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path, kafka={"request_bytes_budget": MIB}) as live:
        frame = produce(1, sample_batch(value=bytes(MIB - 4096)))
        idle, other = [await live.client(), await live.client()], await live.client()
        budget = live.adapter.node.request_budget
        for client in idle:
            client.send(frame[: MIB // 2])
        await until(lambda: budget.runner is not None)
        other.send(frame)
        assert produce_errors((await other.answer())[1]) == [(0, 0)]
        assert live.adapter.listener.faults["request_bytes_budget"] > 0


async def test_a_client_that_goes_amid_a_large_request_gives_its_room_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(produce(1, sample_batch(value=bytes(MIB // 2)))[:100])
        budget = live.adapter.node.request_budget
        await until(lambda: budget.bytes_taken > 0)
        client.writer.transport.abort()
        await until(lambda: budget.bytes_taken == 0)


async def test_answers_that_are_not_taken_stop_the_serving(tmp_path: Path) -> None:
    async with running(tmp_path, partitions=20_000) as live:
        client = await live.client()
        body = struct.pack(">i", 1) + b"\x00\x06orders"
        client.send(*(request(METADATA, 1, n, body) for n in range(40)))
        most = 0

        def note() -> bool:
            nonlocal most
            for connection in live.adapter.listener.connections:
                most = max(most, connection.out_bytes)
            return live.adapter.requests[METADATA] >= 4

        await until(note)
        assert [(await client.answer())[0] for _ in range(40)] == list(range(40))
        assert 0 < most < 3 * MIB


async def test_who_has_not_logged_in_may_send_little(tmp_path: Path) -> None:
    async with running(tmp_path, user="alice") as live:
        client = await live.client()
        client.send(struct.pack(">i", MIB))
        assert await client.ended()
        assert live.adapter.listener.faults["PeerError"] == 1


async def test_a_drain_answers_what_was_begun_and_begins_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as live:
        client = await live.client()
        client.send(request(API_VERSIONS, 0, 0, b""))
        await client.answer()
        live.storage.held = True
        client.send(produce(1, sample_batch()))
        await until(lambda: live.storage.enqueued == 1)
        live.storage.held = False
        client.send(produce(2, sample_batch()))
        live.storage.held = True
        live.adapter.listener.connections.copy().pop().hold_reads("drain")
        live.storage.release()
        assert produce_errors((await client.answer())[1]) == [(0, 0)]
        await live.adapter.drain(1)
        assert live.storage.enqueued == 1
