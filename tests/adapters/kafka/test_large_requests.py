"""Requests of many elements: bounded, served in slices, with the same responses."""

import asyncio
import importlib
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.kafka.fetching import pending_fetch
from adapters.kafka.node.large_requests import SLICE_ELEMENTS, join_slices, topic_slices
from gateway.budget import Budget
from gateway.errors import StorageUnavailable
from gateway.model import TopicName
from tests.adapters.kafka.running_adapter import produce, running
from tests.support.batches import sample_batch
from tests.support.kafka_wire import FETCH, METADATA, PRODUCE, produce_errors, request, text
from tests.support.waiting import until

DELETE_TOPICS, DESCRIBE_CONFIGS = 20, 32
LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP = 2, 8, 9, 10, 11
COUNT = 5 * SLICE_ELEMENTS
ORDERS = TopicName("default", "orders")


class Turns:
    """Counts calls in each turn of the loop."""

    def __init__(self) -> None:
        self.now = 0
        self.calls: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._next)

    def _next(self) -> None:
        self.now += 1
        self._handle = self._loop.call_soon(self._next)

    def stop(self) -> None:
        self._handle.cancel()

    def counting(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[self.now] = self.calls.get(self.now, 0) + 1
            return work(*args, **kwargs)

        return counted


def fetch_of(wanted: dict[str, list[int]], *, wait_ms: int = 0, bytes_min: int = 1) -> bytes:
    out = [struct.pack(">iiiibi", -1, wait_ms, bytes_min, 50 << 20, 0, len(wanted))]
    for topic, numbers in wanted.items():
        out += [text(topic), struct.pack(">i", len(numbers))]
        out += [struct.pack(">iqi", number, 0, 1 << 20) for number in numbers]
    return request(FETCH, 4, 7, b"".join(out))


def fetched(answer: bytes) -> dict[str, list[tuple[int, int, int]]]:
    """Return (number, error code, size of records) by topic."""
    at, found = 8, {}
    for _ in range(struct.unpack_from(">i", answer, 4)[0]):
        (size,) = struct.unpack_from(">h", answer, at)
        name = answer[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (count,) = struct.unpack_from(">i", answer, at)
        at += 4
        partitions = []
        for _ in range(count):
            number, code, _, _, _, size = struct.unpack_from(">ihqqii", answer, at)
            partitions.append((number, code, size))
            at += 30 + size
        assert name not in found
        found[name] = partitions
    return found


def produce_of(numbers: list[int], data: bytes | bytearray) -> bytes:
    out = [struct.pack(">hhii", -1, -1, 30_000, 1), text("orders")]
    out.append(struct.pack(">i", len(numbers)))
    for number in numbers:
        out += [struct.pack(">ii", number, len(data)), bytes(data)]
    return request(PRODUCE, 3, 7, b"".join(out))


def names(count: int) -> list[str]:
    return [f"t{n}" for n in range(count)]


def array(items: list[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


ONE, ZERO = struct.pack(">i", 1), struct.pack(">i", 0)


def topics_with(head: bytes, partitions: bytes, count: int) -> bytes:
    return head + array([text(name) + partitions for name in names(count)])


def find_coordinators(count: int) -> bytes:
    keys = b"".join(bytes([len(name) + 1]) + name.encode() for name in names(count))
    header = struct.pack(">hhi", FIND_COORDINATOR, 4, 7) + text("wire") + b"\0"
    return framed(header, b"\0" + uvarint(count + 1) + keys + b"\0")


BODIES: dict[int, tuple[int, Callable[[int], bytes]]] = {
    PRODUCE: (
        3,
        lambda count: topics_with(
            struct.pack(">hhi", -1, -1, 30_000), ONE + struct.pack(">ii", 0, -1), count
        ),
    ),
    METADATA: (4, lambda count: topics_with(b"", b"", count) + b"\0"),
    OFFSET_FETCH: (5, lambda count: topics_with(text("group"), ONE + ZERO, count)),
    OFFSET_COMMIT: (
        2,
        lambda count: topics_with(
            text("group") + struct.pack(">ihq", -1, 0, -1),
            ONE + struct.pack(">iqh", 0, 5, -1),
            count,
        ),
    ),
    DELETE_TOPICS: (1, lambda count: topics_with(b"", b"", count) + ZERO),
    LIST_OFFSETS: (
        1,
        lambda count: topics_with(struct.pack(">i", -1), ONE + ZERO + b"\xff" * 8, count),
    ),
}


def unknown_topics(api_key: int, count: int) -> bytes:
    """Return a request for ``count`` topics or groups that do not exist."""
    if api_key == FETCH:
        return fetch_of({name: [0] for name in names(count)})
    if api_key == FIND_COORDINATOR:
        return find_coordinators(count)
    version, body = BODIES[api_key]
    return request(api_key, version, 7, body(count))


def framed(header: bytes, body: bytes) -> bytes:
    return struct.pack(">i", len(header) + len(body)) + header + body


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


WORK = {
    FETCH: ("fetching.pending_fetch", "topic_for"),
    PRODUCE: ("producing.batch_appends", "topic_for"),
    METADATA: ("handlers.metadata", "_find"),
    OFFSET_FETCH: ("handlers.offset_fetch", "topic_for"),
    OFFSET_COMMIT: ("handlers.offset_commit", "topic_for"),
    LIST_OFFSETS: ("handlers.list_offsets", "topic_for"),
    FIND_COORDINATOR: ("handlers.find_coordinator", "_find"),
    DELETE_TOPICS: ("handlers.delete_topics", "topic_for"),
}


@pytest.mark.parametrize("api_key", WORK)
async def test_no_turn_of_the_loop_handles_more_than_a_slice(
    api_key: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = WORK[api_key]
    handler = importlib.import_module(f"adapters.kafka.{module}")
    async with running(tmp_path, has_groups=True) as live:
        turns = Turns()
        monkeypatch.setattr(handler, name, turns.counting(getattr(handler, name)))
        client = await live.client()
        client.send(unknown_topics(api_key, COUNT))
        correlation_id, _ = await client.answer()
        turns.stop()
    assert correlation_id == 7
    assert sum(turns.calls.values()) == COUNT
    assert max(turns.calls.values()) <= SLICE_ELEMENTS


@pytest.mark.parametrize("api_key", WORK)
async def test_a_request_within_a_slice_is_handled_in_one_turn(
    api_key: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = WORK[api_key]
    handler = importlib.import_module(f"adapters.kafka.{module}")
    count = SLICE_ELEMENTS // 3
    async with running(tmp_path, has_groups=True) as live:
        turns = Turns()
        monkeypatch.setattr(handler, name, turns.counting(getattr(handler, name)))
        client = await live.client()
        client.send(unknown_topics(api_key, count))
        await client.answer()
        turns.stop()
    assert list(turns.calls.values()) == [count]


@pytest.mark.parametrize("api_key", WORK)
@pytest.mark.parametrize("elements_max", [200, COUNT - 1])
async def test_too_many_elements_close_the_connection(
    api_key: int, elements_max: int, tmp_path: Path
) -> None:
    async with running(
        tmp_path, has_groups=True, kafka={"request_elements_max": elements_max}
    ) as live:
        client = await live.client()
        client.send(unknown_topics(api_key, COUNT))
        assert await client.ended()
        assert live.adapter.listener.faults["TooManyElements"] == 1


async def test_a_member_with_too_many_protocols_is_refused(tmp_path: Path) -> None:
    head = text("g") + struct.pack(">ii", 10_000, 10_000) + text("") + text("consumer")
    body = topics_with(head, ZERO, COUNT)  # of protocols, without metadata
    async with running(tmp_path, has_groups=True) as live:
        client = await live.client()
        client.send(request(JOIN_GROUP, 1, 7, body))
        _, answer = await client.answer()
    assert struct.unpack_from(">h", answer) == (23,)


async def test_many_tagged_fields_of_a_header_close_the_connection(tmp_path: Path) -> None:
    header = struct.pack(">hhi", FIND_COORDINATOR, 4, 7) + text("wire")
    tags = uvarint(100) + b"\x05\0" * 100
    async with running(tmp_path, has_groups=True) as live:
        client = await live.client()
        client.send(framed(header, tags))
        assert await client.ended()
        assert live.adapter.listener.faults["TooManyElements"] == 1


async def test_a_large_produce_is_kept_and_a_partition_named_twice_is_refused(
    tmp_path: Path,
) -> None:
    numbers = list(range(3 * SLICE_ELEMENTS))
    async with running(tmp_path, partitions=len(numbers)) as live:
        client = await live.client()
        client.send(produce_of([*numbers, 0], sample_batch()))
        found = produce_errors((await client.answer())[1])
        assert found[:-1] == [(0, 0)] * len(numbers)
        assert found[-1][0] == 42
        client.send(fetch_of({"orders": numbers}))
        answer = fetched((await client.answer())[1])
    assert [number for number, _, _ in answer["orders"]] == numbers
    assert {(code, size) for _, code, size in answer["orders"]} == {(0, len(sample_batch()))}


async def test_a_large_produce_that_the_log_refuses_says_so_for_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = list(range(2 * SLICE_ELEMENTS))

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise StorageUnavailable

    async with running(tmp_path, partitions=len(numbers)) as live:
        client = await live.client()
        monkeypatch.setattr(live.storage, "enqueue", refuse)
        client.send(produce_of(numbers, sample_batch()))
        found = produce_errors((await client.answer())[1])
    assert found == [(56, -1)] * len(numbers)


async def test_requests_behind_a_large_one_are_answered_after_it(tmp_path: Path) -> None:
    numbers = list(range(2 * SLICE_ELEMENTS))
    async with running(tmp_path, partitions=len(numbers)) as live:
        client = await live.client()
        client.send(produce_of(numbers, sample_batch()), produce(8, sample_batch(), number=5))
        first, _ = await client.answer()
        second, answer = await client.answer()
    assert (first, second) == (7, 8)
    assert produce_errors(answer) == [(0, 1)]


async def test_a_large_fetch_waits_and_wakes(tmp_path: Path) -> None:
    numbers = list(range(3 * SLICE_ELEMENTS))
    async with running(tmp_path, partitions=len(numbers)) as live:
        waiting, producing = await live.client(), await live.client()
        partition = live.kernel.broker.partition(live.kernel.topics.get(ORDERS), numbers[-2])
        waiting.send(fetch_of({"orders": numbers}, wait_ms=300_000))
        await until(lambda: bool(partition.waiters))
        producing.send(produce(1, sample_batch(), number=numbers[-2]))
        answer = fetched((await waiting.answer())[1])["orders"]
        assert not partition.waiters
    assert [number for number, _, size in answer if size] == [numbers[-2]]


async def test_a_large_fetch_notices_what_comes_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = list(range(3 * SLICE_ELEMENTS))
    async with running(tmp_path, partitions=len(numbers)) as live:
        waiting, producing = await live.client(), await live.client()
        partition = live.kernel.broker.partition(live.kernel.topics.get(ORDERS), 0)

        async def append_once() -> None:
            if partition.waiters and not partition.log_end_offset:  # its slice has been read
                producing.send(produce(1, sample_batch()))
                await producing.answer()
            await asyncio.sleep(0)

        monkeypatch.setattr(pending_fetch, "yield_to_loop", append_once)
        waiting.send(fetch_of({"orders": numbers}, wait_ms=300_000))
        answer = fetched((await waiting.answer())[1])["orders"]
    assert [number for number, _, size in answer if size] == [0]


async def test_a_large_fetch_ends_with_its_client_and_with_the_node(tmp_path: Path) -> None:
    numbers = list(range(2 * SLICE_ELEMENTS))
    async with running(tmp_path, partitions=len(numbers)) as live:
        partition = live.kernel.broker.partition(live.kernel.topics.get(ORDERS), numbers[-1])
        gone = await live.client()
        gone.send(fetch_of({"orders": numbers}, wait_ms=300_000))
        await until(lambda: bool(partition.waiters))
        gone.writer.close()
        await until(lambda: not partition.waiters)
        draining = await live.client()
        draining.send(fetch_of({"orders": numbers}, wait_ms=300_000))
        await until(lambda: bool(partition.waiters))
        [connection] = live.adapter.listener.connections
        connection.hurry()
        answer = fetched((await draining.answer())[1])["orders"]
        assert len(answer) == len(numbers)
        await until(lambda: _is_unused(live.adapter.node.fetch_budget))


def _is_unused(budget: Budget) -> bool:
    return budget.bytes_taken == 0


async def test_all_positions_of_a_group_cannot_be_asked_for_without_end(
    tmp_path: Path,
) -> None:
    group = bytes([6]) + b"group" + b"\0\0"  # no topics: all of them
    body = uvarint(COUNT + 1) + group * COUNT + b"\0\0"
    header = struct.pack(">hhi", OFFSET_FETCH, 8, 7) + text("wire") + b"\0"
    async with running(
        tmp_path, partitions=10, has_groups=True, kafka={"request_elements_max": 2 * COUNT}
    ) as live:
        client = await live.client()
        position = struct.pack(">iqh", 0, 5, -1)
        numbers = [struct.pack(">i", n) + position[4:] for n in range(10)]
        head = text("group") + struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
        topics = [text("orders") + array(numbers)]
        client.send(request(OFFSET_COMMIT, 2, 1, head + array(topics)))
        await client.answer()
        client.send(framed(header, body))
        assert await client.ended()


@pytest.mark.parametrize("count", [SLICE_ELEMENTS, 3 * SLICE_ELEMENTS])
async def test_all_positions_of_a_group_come_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    handler = importlib.import_module("adapters.kafka.handlers.offset_fetch")
    async with running(tmp_path, partitions=count, has_groups=True) as live:
        client = await live.client()
        positions = [struct.pack(">iqh", n, n + 5, -1) for n in range(count)]
        head = text("group") + struct.pack(">ihq", -1, 0, -1)
        topics = [text("orders") + array(positions)]
        client.send(request(OFFSET_COMMIT, 2, 1, head + array(topics)))
        await client.answer()
        turns = Turns()
        monkeypatch.setattr(handler, "_position", turns.counting(handler._position))
        client.send(request(OFFSET_FETCH, 5, 2, text("group") + struct.pack(">i", -1)))
        _, answer = await client.answer()
        turns.stop()
    assert sum(turns.calls.values()) == count
    assert max(turns.calls.values()) <= SLICE_ELEMENTS
    assert struct.unpack_from(">ii", answer) == (0, 1)
    at = 8 + len(text("orders"))
    assert struct.unpack_from(">i", answer, at) == (count,)
    found = {struct.unpack_from(">iq", answer, at + 4 + 20 * n) for n in range(count)}
    assert found == {(n, n + 5) for n in range(count)}


async def test_configs_of_many_topics_are_described_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = importlib.import_module("adapters.kafka.handlers.describe_configs")
    resource = b"\x02" + text("orders") + struct.pack(">i", -1)
    async with running(tmp_path) as live:
        turns = Turns()
        monkeypatch.setattr(handler, "_answer", turns.counting(handler._answer))
        client = await live.client()
        for count in (100, SLICE_ELEMENTS + 1):
            client.send(request(DESCRIBE_CONFIGS, 1, 7, array([resource] * count) + b"\0"))
            _, answer = await client.answer()
            assert struct.unpack_from(">ii", answer) == (0, count)
        turns.stop()
    assert sum(turns.calls.values()) == 100 + SLICE_ELEMENTS + 1
    assert max(turns.calls.values()) <= handler.RESOURCES_AT_ONCE


def test_topics_are_cut_into_slices_and_joined_again() -> None:
    large = ("large", list(range(2 * SLICE_ELEMENTS + 7)))
    topics = [("empty", []), large, *((name, [0]) for name in names(SLICE_ELEMENTS)), ("e", [])]
    groups = list(topic_slices(topics))
    assert all(sum(1 + len(parts) for _, parts in group) <= SLICE_ELEMENTS for group in groups)
    assert join_slices(topics, groups) == topics
