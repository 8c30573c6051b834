"""Searching topics: by key and header, in steps, with and without an index."""

from typing import Any

import pytest

from gateway.broker import Broker
from gateway.errors import InvalidRequest, TopicNotFound
from gateway.partition import Partition
from gateway.record_search import BEGINNING, Query, RecordSearch, SearchPosition, Step
from gateway.records.codec import NewRecord, encode_batch
from gateway.storage import KeySpans, WantedKeys
from gateway.topics.manager import Topic
from gateway.writer import Write
from tests.gateway.kernel_in_memory import House, outcome

RED, BLUE = ("colour", b"red"), ("colour", b"blue")


async def produce(broker: Broker, partition: Partition, *records: NewRecord) -> None:
    """Append the records as one batch."""
    write = broker.prepare(partition, encode_batch(records))
    assert isinstance(write, Write)
    assert await outcome(lambda on_done: broker.append([write], on_done)) is None


async def filled(house: House, batches: int = 30) -> Topic:
    """Return a topic of two partitions: batch ``n`` of either has keys ``k<n>`` and ``all``."""
    topic = await house.topic("orders", 2)
    for number in (0, 1):
        partition = house.broker.partition(topic, number)
        for n in range(batches):
            now = house.clock.unix_ms() + n
            await produce(
                house.broker,
                partition,
                (now, b"k%d" % n, b"value-%d" % n, [RED if n % 2 else BLUE]),
                (now, b"all", None, []),
                (now, None, b"k1", []),
            )
    return topic


async def found(
    finder: RecordSearch, topic: Topic, query: Query, **options: Any
) -> list[tuple[int, int]]:
    """Return the places of all matches, over as many steps as it takes."""
    place: SearchPosition | None = options.pop("start", SearchPosition(0))
    places: list[tuple[int, int]] = []
    while place is not None:
        step: Step = await finder.step(topic, query, start=place, **options)
        places += [(match.partition, match.record.offset) for match in step.matches]
        place = step.next
    return places


async def test_a_key_is_found_in_every_partition(house: House) -> None:
    topic = await filled(house)
    finder = RecordSearch(house.broker)
    assert await found(finder, topic, Query(b"k7")) == [(0, 21), (1, 21)]
    assert await found(finder, topic, Query(b"k")) == []
    assert len(await found(finder, topic, Query(b"all"))) == 60


async def test_headers_narrow_and_can_stand_alone(house: House) -> None:
    topic = await filled(house)
    finder = RecordSearch(house.broker)
    assert await found(finder, topic, Query(b"k7", (BLUE,))) == []
    assert await found(finder, topic, Query(b"k7", (RED,))) == [(0, 21), (1, 21)]
    assert len(await found(finder, topic, Query(None, (RED,)))) == 30


async def test_small_steps_find_the_same_and_nothing_twice(house: House) -> None:
    topic = await filled(house)
    whole = await found(RecordSearch(house.broker), topic, Query(b"all"))
    assert (
        await found(RecordSearch(house.broker, step_bytes_max=1), topic, Query(b"all")) == whole
    )
    assert (
        await found(RecordSearch(house.broker, answer_bytes_max=1), topic, Query(b"all"))
        == whole
    )
    assert await found(RecordSearch(house.broker), topic, Query(b"all"), limit=7) == whole


async def test_a_step_reads_no_more_than_it_may(house: House) -> None:
    topic = await filled(house)
    step = await RecordSearch(house.broker, step_bytes_max=1_000).step(
        topic, Query(b"nobody"), start=SearchPosition(0)
    )
    assert step.next is not None
    assert step.next.partition == 0
    assert 1_000 <= step.read_bytes < 1_300
    assert step.matches == []


async def test_one_partition_an_offset_and_a_time_bound_the_search(house: House) -> None:
    topic = await filled(house)
    finder = RecordSearch(house.broker)
    only = await found(
        finder, topic, Query(b"k7"), start=SearchPosition(1), only_partition=True
    )
    assert only == [(1, 21)]
    late = await found(finder, topic, Query(b"all", offset_min=86))
    assert late == [(0, 88), (1, 88)]
    since = house.clock.unix_ms() + 28
    by_time = await found(finder, topic, Query(b"all", timestamp_unix_ms_min=since))
    assert by_time == [(0, 85), (0, 88), (1, 85), (1, 88)]
    never = Query(b"all", timestamp_unix_ms_min=since + 100)
    assert await found(finder, topic, never) == []


async def test_below_the_log_start_nothing_is_found(house: House) -> None:
    topic = await filled(house)
    partition = house.broker.partition(topic, 0)
    await outcome(lambda done: house.broker.truncate_before(partition, 60, done))
    assert await found(RecordSearch(house.broker), topic, Query(b"k7")) == [(1, 21)]


async def test_a_batch_that_cannot_be_decoded_is_counted(house: House) -> None:
    topic = await house.topic("orders", 1)
    partition = house.broker.partition(topic, 0)
    batch = encode_batch([(house.clock.unix_ms(), b"key", b"value", ())] * 2, attributes=2)
    write = house.broker.prepare(partition, batch)  # says snappy, is not
    assert isinstance(write, Write)
    await outcome(lambda on_done: house.broker.append([write], on_done))
    await produce(house.broker, partition, (house.clock.unix_ms(), b"key", b"value", ()))

    step = await RecordSearch(house.broker).step(topic, Query(b"key"), start=SearchPosition(0))

    assert [match.record.offset for match in step.matches] == [2]
    assert step.undecodable_count == 1


async def test_what_asks_for_nothing_or_nowhere_is_refused(house: House) -> None:
    topic = await filled(house, 1)
    finder = RecordSearch(house.broker)
    with pytest.raises(InvalidRequest, match="key or a header"):
        await finder.step(topic, Query(None), start=SearchPosition(0))
    with pytest.raises(TopicNotFound):
        await finder.step(topic, Query(b"key"), start=SearchPosition(2, BEGINNING))


async def test_with_an_index_only_its_ranges_are_read(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await filled(house)
    partition = house.broker.partition(topic, 0)
    spans = [(9, 12), (30, 36), (88, 90)]

    async def spans_with_keys(
        partition_id: int, keys: WantedKeys, start: int, end: int
    ) -> KeySpans:
        assert (partition_id, keys.exact) == (partition.partition_id, frozenset([b"all"]))
        upto = min(end, start + 50)  # of two files, as it were
        return KeySpans([span for span in spans if start <= span[0] < upto], upto)

    monkeypatch.setattr(house.storage, "spans_with_keys", spans_with_keys, raising=False)

    finder = RecordSearch(house.broker)
    step = await finder.step(topic, Query(b"all"), start=SearchPosition(0), only_partition=True)

    assert [match.record.offset for match in step.matches] == [10, 31, 34, 88]
    everything = house.broker.size_bytes(partition)
    assert step.read_bytes < everything / 5
