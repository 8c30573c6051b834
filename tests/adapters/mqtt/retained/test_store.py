"""Retained messages: the last one of each topic, found by filter, there after a restart."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.contribution import RETAINED_TOPIC
from adapters.mqtt.retained import store as retained_store
from adapters.mqtt.retained.store import (
    Retained,
    RetainedStore,
    RetainedStretch,
)
from adapters.mqtt.wire import (
    NO_PROPERTIES,
    MixedTopicPublishes,
    PublishProperties,
    PublishRun,
)
from gateway.coalescer import Coalescer
from gateway.errors import InvalidRecord, MessageTooLarge, Overloaded, StorageFull
from gateway.model import TopicName
from gateway.records.codec import NO_HEADERS
from gateway.records.record_run import RecordRun
from gateway.streams import VALUE_BYTES_MAX
from tests.gateway.kernel_in_memory import House, outcome, running
from tests.support.examples import examples

CONFIG = MqttConfig()


@pytest.fixture(params=[1, 64], ids="{} shards".format)
async def house(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    async with running(tmp_path, bytes_max=4 << 20, shard_count=request.param) as one:
        yield one


async def opened(
    house: House, config: MqttConfig = CONFIG, coalescer: Coalescer | None = None
) -> RetainedStore:
    coalescer = coalescer or Coalescer(house.broker, reserved=True)
    return await RetainedStore.open(house.broker, house.topics, house.clock, coalescer, config)


def run_of(
    topic: str,
    *payloads: bytes,
    qos: int = 0,
    client_id: str = "",
    properties: PublishProperties = NO_PROPERTIES,
) -> PublishRun:
    return PublishRun(
        topic.encode(),
        list(payloads),
        qos=qos,
        retain=True,
        client_id=client_id,
        properties=properties,
    )


async def keep(store: RetainedStore, house: House, *runs: PublishRun) -> None:
    items = [item for run in runs for item in store.items(run, house.clock.unix_ms())]
    assert await outcome(partial(store.put, items)) is None


def found(store: RetainedStore, topic_filter: str) -> dict[str, bytes]:
    """Return what matches, which is the same in stretches as in runs of one message."""
    stretches, runs = (scan(store, topic_filter, as_runs=as_runs) for as_runs in (False, True))
    assert stretches == runs
    return {topic.decode(): payload for topic, payload in runs}


def scan(
    store: RetainedStore, topic_filter: str, *, as_runs: bool
) -> list[tuple[bytes, bytes]]:
    messages: list[tuple[bytes, bytes]] = []
    after: bytes | None = b""
    while after is not None:
        some, after = store.match(
            topic_filter, after=after, count_max=3, bytes_max=1_000, as_runs=as_runs
        )
        messages += messages_of(some)
    return messages


def messages_of(parts: Sequence[Retained]) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    for part in parts:
        if isinstance(part, RetainedStretch):
            found += zip(part.topics, part.payloads, strict=True)
        else:
            found.append((part.topic, part.payloads[0]))
    return found


async def test_the_last_message_of_a_topic_is_kept(house: House) -> None:  # MQTT-3.3.1-5
    store = await opened(house)

    await keep(store, house, run_of("a", b"1", b"2"), run_of("b", b"3"))
    await keep(store, house, run_of("a", b"4", qos=2))

    assert found(store, "#") == {"a": b"4", "b": b"3"}
    run = store.get(b"a")
    assert run is not None
    assert (run.qos, run.retain, run.payloads) == (2, True, [b"4"])
    assert store.get(b"c") is None


async def test_an_empty_payload_removes(house: House) -> None:  # MQTT-3.3.1-6, MQTT-3.3.1-7
    store = await opened(house)
    await keep(store, house, run_of("a", b"1"), run_of("b", b"2"))

    await keep(store, house, run_of("a", b"x", b""), run_of("never/there", b""))

    assert found(store, "#") == {"b": b"2"}
    assert len(store) == 1


async def test_what_came_after_an_empty_payload_is_kept(house: House) -> None:
    store = await opened(house)

    await keep(store, house, run_of("a", b"", b"1"), run_of("b", b"2"), run_of("b", b""))

    assert found(store, "#") == {"a": b"1"}


async def test_messages_survive_a_restart_with_all_they_are(house: House) -> None:
    store = await opened(house)
    properties = PublishProperties(
        payload_format_indicator=1,
        content_type="text/plain",
        response_topic="answers/ü",
        correlation_data=b"\0\xff",
        user_properties=(("k", "1"), ("k", "2"), ("", "")),
    )
    hop = properties._replace(
        message_expiry_interval=60, topic_alias=7, subscription_identifiers=(9,)
    )
    await keep(
        store,
        house,
        run_of("ä/b", b"\0payload", qos=1, client_id="sensor ü", properties=hop),
        run_of("removed", b"1"),
    )
    await keep(store, house, run_of("removed", b""))

    await house.restart()
    again = await opened(house)

    run = again.get("ä/b".encode())
    assert run is not None
    assert (run.topic, run.payloads) == ("ä/b".encode(), [b"\0payload"])
    assert (run.qos, run.retain, run.client_id) == (1, True, "sensor ü")
    assert run.properties == properties
    assert run.expires_at_unix_ms == house.clock.unix_ms() + 60_000
    assert (len(again), again.size_bytes) == (1, store.size_bytes)
    assert found(again, "+/b") == {"ä/b": b"\0payload"}


async def test_an_expired_message_is_not_there(house: House) -> None:  # MQTT-3.3.2-5
    store = await opened(house)
    soon = PublishProperties(message_expiry_interval=2)
    await keep(store, house, run_of("a", b"1", properties=soon), run_of("b", b"2"))

    house.clock.advance(1_999)
    assert found(store, "#") == {"a": b"1", "b": b"2"}
    house.clock.advance(1)
    assert found(store, "#") == {"b": b"2"}
    assert store.get(b"a") is None


async def test_a_deadline_that_the_run_has_counts(house: House) -> None:
    """A run from the log waited there."""
    store = await opened(house)
    run = run_of("a", b"1", properties=PublishProperties(message_expiry_interval=9))
    run.expires_at_unix_ms = house.clock.unix_ms() + 1_000

    await keep(store, house, run)

    kept = store.get(b"a")
    assert kept is not None
    assert kept.expires_at_unix_ms == run.expires_at_unix_ms


async def test_a_message_expired_on_arrival_removes_the_one_before(house: House) -> None:
    store = await opened(house)
    await keep(store, house, run_of("a", b"1"))

    gone = PublishProperties(message_expiry_interval=0)
    await keep(store, house, run_of("a", b"2", properties=gone))

    assert len(store) == 0


async def test_expired_messages_are_swept_a_few_at_a_time(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained_store, "SWEPT_PER_CALL_MAX", 4)
    store = await opened(house)
    soon = PublishProperties(message_expiry_interval=1)
    await keep(store, house, *(run_of(f"{n}", b"stays") for n in range(4)))
    await keep(store, house, *(run_of(f"{n}", b"x", properties=soon) for n in range(4, 10)))
    house.clock.advance(1_000)

    swept = [store.sweep(lambda _: None) for _ in range(4)]

    assert swept == [0, 4, 2, 0]
    assert len(store) == 4
    await keep(store, house)
    await house.restart()
    assert sorted(found(await opened(house), "#")) == ["0", "1", "2", "3"]


async def test_topics_are_bounded(house: House) -> None:
    store = await opened(house, MqttConfig(retained_max=2))
    await keep(store, house, run_of("a", b"1"), run_of("b", b"2"))

    with pytest.raises(Overloaded, match="retained_max"):
        store.items(run_of("c", b"3"), house.clock.unix_ms())

    await keep(store, house, run_of("a", b"replaced"))
    await keep(store, house, run_of("b", b""))
    await keep(store, house, run_of("c", b"3"))
    assert found(store, "#") == {"a": b"replaced", "c": b"3"}


@pytest.mark.parametrize("properties", [NO_PROPERTIES, PublishProperties(content_type="x")])
@pytest.mark.parametrize("client_id", ["", "me"])
async def test_mixed_topics_are_kept_as_their_messages_are(
    house: House, properties: PublishProperties, client_id: str
) -> None:
    store = await opened(house, MqttConfig(retained_max=3))
    topics, payloads = [b"a", b"b", b"a", b"b"], [b"1", b"2", b"", b"4"]
    like = run_of("", b"", qos=1, client_id=client_id, properties=properties)
    mixed = MixedTopicPublishes(like, topics, payloads, [1, 2, 3, 4], [])
    now_unix_ms = house.clock.unix_ms()

    items = store.items_of(mixed, now_unix_ms)

    assert items == [item for run in mixed.runs() for item in store.items(run, now_unix_ms)]
    await keep(store, house, run_of("x", b"1"), run_of("y", b"2"))
    with pytest.raises(Overloaded, match="retained_max"):  # a comes before it goes
        store.items_of(mixed, now_unix_ms)


async def test_bytes_are_bounded(house: House) -> None:
    store = await opened(house, MqttConfig(retained_bytes_max=1 << 20))
    await keep(store, house, run_of("a", bytes(600_000)))

    for refused in (run_of("b", bytes(500_000)), run_of("a", bytes(1_100_000))):
        with pytest.raises(Overloaded, match="retained_bytes_max"):
            store.items(refused, house.clock.unix_ms())

    await keep(store, house, run_of("a", b"x" * 600_000))
    await keep(store, house, run_of("a", bytes(1_000)))
    await keep(store, house, run_of("b", bytes(500_000)))
    assert len(store) == 2


async def test_a_refused_append_leaves_all_as_it_was(house: House) -> None:
    store = await opened(house)
    await keep(store, house, run_of("a", b"old"), run_of("filler", bytes(4_190_000)))
    now_unix_ms = house.clock.unix_ms()
    puts = [
        [*store.items(run_of("a", b""), now_unix_ms), (b"new", bytes(5_000))],
        store.items(run_of("a", b"newer"), now_unix_ms),
    ]

    errors = await asyncio.gather(*(outcome(partial(store.put, items)) for items in puts))

    assert [type(error) for error in errors] == [StorageFull, StorageFull]
    assert found(store, "a") == {"a": b"old"}
    assert found(store, "new") == {}
    assert len(store) == 2


async def test_a_message_above_the_bound_changes_nothing(house: House) -> None:
    store = await opened(house)

    with pytest.raises(MessageTooLarge):
        store.put([(b"a", bytes(VALUE_BYTES_MAX))], lambda _: None)

    assert found(store, "#") == {}


async def test_the_message_lies_beside_its_retained_copy(house: House) -> None:
    """One append: after a crash both are there, or none."""
    coalescer = Coalescer(house.broker, reserved=True)
    store = await opened(house, coalescer=coalescer)
    partition = await house.partition("mqtt")
    now_unix_ms = house.clock.unix_ms()
    items = store.items(run_of("a", b"1"), now_unix_ms)
    record = RecordRun(b"a", [b"1"], NO_HEADERS, now_unix_ms)

    assert await outcome(partial(store.put, items, beside=[(partition, record)])) is None

    assert house.values(partition) == [b"1"]
    assert found(store, "#") == {"a": b"1"}
    assert coalescer.rounds_appended == 1


async def test_a_scan_ends_at_its_bytes_and_goes_on_there(house: House) -> None:
    store = await opened(house)
    await keep(store, house, *(run_of(f"{n}", bytes(400)) for n in range(5)))

    parts, after = store.match("#", count_max=9, bytes_max=800)

    assert [topic for topic, _ in messages_of(parts)] == [b"0", b"1"]
    assert after == b"1"
    assert len(found(store, "#")) == 5


async def test_a_stretch_has_one_qos_and_nothing_that_is_rare(house: House) -> None:
    store = await opened(house)
    typed = PublishProperties(content_type="x")
    await keep(store, house, run_of("a", b"1", client_id="p"), run_of("b", b"2"))
    await keep(store, house, run_of("c", b"3", qos=1), run_of("d", b"4", properties=typed))
    await keep(store, house, run_of("e", b"5", qos=1, client_id="longer"))

    parts, after = store.match("#", count_max=9, bytes_max=1_000)

    assert after is None or store.match("#", after=after, count_max=9, bytes_max=1) == (
        [],
        None,
    )
    assert parts[:2] == [
        RetainedStretch([b"a", b"b"], [b"1", b"2"], 0),
        RetainedStretch([b"c"], [b"3"], 1),
    ]
    assert isinstance(parts[2], PublishRun)
    assert parts[2].properties == typed
    assert parts[3:] == [RetainedStretch([b"e"], [b"5"], 1)]


async def test_a_name_is_kept_once(house: House) -> None:
    store = await opened(house)
    await keep(store, house, run_of("a/name", b"1"))
    await keep(store, house, run_of("a/name", b"2"))

    (name,) = store.stream.values
    assert store._topics.find(b"a/name") is name


async def test_a_message_of_a_later_release_is_refused(house: House) -> None:
    store = await opened(house)
    assert await outcome(partial(store.put, [(b"a", b"\x01" + bytes(9))])) is None

    with pytest.raises(InvalidRecord, match="version 1"):
        store.get(b"a")


async def test_its_stream_is_internal(house: House) -> None:
    await opened(house)

    assert house.topics.get(TopicName("default", RETAINED_TOPIC)).is_internal


@given(
    puts=st.lists(
        st.tuples(
            st.sampled_from(["a", "a/b", "a!", "$a"]),
            st.lists(st.sampled_from([b"", b"x", b"yy"]), min_size=1, max_size=3),
            st.none() | st.integers(0, 3),
            st.integers(0, 2_000),
        ),
        max_size=20,
    )
)
@settings(max_examples=examples(20), deadline=None)
def test_readers_see_what_was_kept_last_and_has_not_expired(
    tmp_path_factory: pytest.TempPathFactory,
    puts: list[tuple[str, list[bytes], int | None, int]],
) -> None:
    async def run() -> None:
        async with running(tmp_path_factory.mktemp("house")) as house:
            store = await opened(house)
            model: dict[str, tuple[bytes, int | None]] = {}
            for topic, payloads, interval_s, wait_ms in puts:
                properties = PublishProperties(message_expiry_interval=interval_s)
                now = house.clock.unix_ms()
                await keep(store, house, run_of(topic, *payloads, properties=properties))
                end = None if interval_s is None else now + interval_s * 1_000
                model[topic] = (payloads[-1], end)
                house.clock.advance(wait_ms)
                store.sweep(lambda _: None)
            now = house.clock.unix_ms()
            expected = {
                topic: payload
                for topic, (payload, end) in model.items()
                if payload and (end is None or end > now)
            }
            assert found(store, "#") | found(store, "$a") == expected
            await keep(store, house)
            await house.restart()
            again = await opened(house)
            assert found(again, "#") | found(again, "$a") == expected
            assert len(again) == len(store)

    asyncio.run(run())
