"""Runs into batches and back."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mqtt.config import MqttConfig
from adapters.mqtt.mapping import (
    header_block,
    mixed_runs_of_batch,
    record_run,
    runs_of_batch,
)
from adapters.mqtt.records.mixed_topic_batch import (
    MIXED_TOPICS_BYTES_MAX,
    MIXED_TOPICS_MAX,
    MixedTopicBatch,
)
from adapters.mqtt.records.record_kinds import CACHED_BLOCK_BYTES_MAX
from adapters.mqtt.route_config import RouteConfig
from adapters.mqtt.routes import Routes
from adapters.mqtt.wire import NO_PROPERTIES, PublishProperties, PublishRun
from gateway.errors import CorruptBatch
from gateway.model import (
    ATTRIBUTES_AT,
    CONTROL_MASK,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_OVERHEAD_BYTES,
    stamp,
)
from gateway.records.codec import decode_batch, encode_batch, encode_runs
from gateway.records.compression import GZIP, compress
from gateway.records.record_run import RecordRun
from tests.support.examples import examples

NOW_UNIX_MS = 1_700_000_000_123
ROUTES = Routes(
    MqttConfig(routes=(RouteConfig(filter="k/+", topic="t", key="{1}", default_qos=2),))
)
ROUTE = ROUTES.find(b"a", 1).route

TEXTS = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=8)
NAMES = TEXTS | st.sampled_from(
    ["content-type", "mqtt.qos", "mqtt.user.a", "mqtt.null", "expires-at", "a;null", "dlq.x"]
)
PROPERTIES = st.builds(
    PublishProperties,
    payload_format_indicator=st.none() | st.integers(0, 1),
    message_expiry_interval=st.none(),
    content_type=st.none() | TEXTS,
    response_topic=st.none() | st.sampled_from(["r", "$r/é", "/"]),
    correlation_data=st.none() | st.binary(max_size=8),
    user_properties=st.lists(st.tuples(NAMES, TEXTS), max_size=4).map(tuple),
    topic_alias=st.none(),
    subscription_identifiers=st.just(()),
)


def runs(topics: list[bytes]) -> st.SearchStrategy[list[PublishRun]]:
    """Return publishes to some topics, which share a route."""
    one = st.builds(
        PublishRun,
        st.sampled_from(topics),
        st.lists(st.binary(max_size=80), min_size=1, max_size=5),
        qos=st.integers(0, 2),
        retain=st.booleans(),
        properties=st.just(NO_PROPERTIES) | PROPERTIES,
        client_id=TEXTS,
    )
    return st.lists(one, min_size=1, max_size=4)


def records_of(run: PublishRun, now_unix_ms: int = NOW_UNIX_MS) -> RecordRun:
    routed = ROUTES.find(run.topic, run.qos)
    return record_run(run, routed, client_id=run.client_id, now_unix_ms=now_unix_ms)


def read(
    batch: bytes | bytearray,
    *,
    from_offset: int = 0,
    route: RouteConfig = ROUTE,
    wants: Callable[[bytes], bool] | None = None,
) -> tuple[list[PublishRun], Counter[str]]:
    skipped: Counter[str] = Counter()
    found = runs_of_batch(batch, route, from_offset=from_offset, skipped=skipped, wants=wants)
    return found, skipped


def messages(found: list[PublishRun]) -> list[tuple[object, ...]]:
    return [
        (
            run.base_offset + index,
            run.topic,
            payload,
            run.qos,
            run.retain,
            run.properties,
            run.client_id,
        )
        for run in found
        for index, payload in enumerate(run.payloads)
    ]


@settings(max_examples=examples(150), deadline=None)
@given(
    published=runs([b"a", b"a/b"]) | runs([b"k/", b"k/x", "k/é".encode()]),
    base_offset=st.integers(0, 2**40),
)
def test_what_went_in_comes_out_as_it_was(
    published: list[PublishRun], base_offset: int
) -> None:
    offset = base_offset
    for run in published:
        run.base_offset, offset = offset, offset + len(run.payloads)
    batch = encode_runs([records_of(run) for run in published], base_offset=base_offset)
    route = ROUTES.find(published[0].topic, 1).route

    found, skipped = read(batch, route=route)

    assert messages(found) == messages(published)
    assert not skipped


def test_an_interval_becomes_a_deadline() -> None:
    run = PublishRun(b"a", [b"1"], properties=PublishProperties(message_expiry_interval=2))

    (found,) = read(encode_runs([records_of(run)]))[0]

    assert run.expires_at_unix_ms == found.expires_at_unix_ms == NOW_UNIX_MS + 2_000
    assert found.properties.message_expiry_interval is None


def test_a_run_knows_its_publisher_and_goes_along_in_its_own_form() -> None:
    run = PublishRun(b"k/7", [b"1", b"2"], qos=1)

    made = record_run(run, ROUTES.find(b"k/7", 1), client_id="me", now_unix_ms=NOW_UNIX_MS)

    assert run.client_id == "me"
    assert made.native is run
    assert (made.key, list(made.values)) == (b"7", [b"1", b"2"])


def test_records_of_equal_form_are_one_run_and_gaps_end_it() -> None:
    headers = (("h", b"1"),)
    rows = [(b"a", b"0", ()), (b"a", b"1", ()), (b"b", b"2", ()), (b"b", b"3", headers)]
    batch = encode_batch([(NOW_UNIX_MS + i, k, v, h) for i, (k, v, h) in enumerate(rows)])
    stamp(batch, 100, 0)

    found, _ = read(batch)

    assert [(r.topic, r.payloads, r.base_offset) for r in found] == [
        (b"a", [b"0", b"1"], 100),
        (b"b", [b"2"], 102),
        (b"b", [b"3"], 103),
    ]


def compacted(batch: bytearray, removed: int) -> bytearray:
    """Return the batch without one of its records, all of one size, as compaction leaves it."""
    count = int.from_bytes(batch[57:61])
    size = (len(batch) - HEADER_BYTES) // count
    at = HEADER_BYTES + removed * size
    rest = batch[:at] + batch[at + size :]
    rest[57:61] = (count - 1).to_bytes(4)
    rest[LENGTH_AT : LENGTH_AT + 4] = (len(rest) - LENGTH_OVERHEAD_BYTES).to_bytes(4)
    return rest


def test_a_gap_in_the_offsets_ends_a_run() -> None:
    batch = compacted(encode_batch([(0, b"a", b"%d" % n, ()) for n in range(4)]), 1)

    found, _ = read(batch)

    assert [(r.base_offset, r.payloads) for r in found] == [(0, [b"0"]), (2, [b"2", b"3"])]


def test_what_is_skipped_ends_a_run_and_the_rest_comes() -> None:
    keys = [b"a", b"$x", b"$x", b"a", None]
    batch = encode_batch([(0, key, b"%d" % n, ()) for n, key in enumerate(keys)])

    found, skipped = read(batch)

    assert [(r.base_offset, r.payloads) for r in found] == [(0, [b"0"]), (3, [b"3"])]
    assert skipped == {"no_topic_name": 3}


def test_reading_begins_in_the_middle_of_a_batch() -> None:
    batch = encode_batch([(0, b"a", b"%d" % n, ()) for n in range(5)])
    stamp(batch, 10, 0)

    (run,) = read(batch, from_offset=13)[0]

    assert (run.base_offset, run.payloads) == (13, [b"3", b"4"])


def test_null_and_empty_values_are_told_apart() -> None:
    batch = encode_batch([(0, b"a", value, ()) for value in (b"", None, b"")])

    found, _ = read(batch)

    assert [run.payloads for run in found] == [[b""]] * 3
    assert [run.properties.user_properties for run in found] == [(), (("mqtt.null", "1"),), ()]


def packed(plain: bytearray) -> bytearray:
    """Return a batch with its records compressed."""
    batch = plain[:HEADER_BYTES] + compress(GZIP, bytes(plain[HEADER_BYTES:]))
    batch[ATTRIBUTES_AT + 1] = GZIP
    batch[LENGTH_AT : LENGTH_AT + 4] = (len(batch) - LENGTH_OVERHEAD_BYTES).to_bytes(4)
    return batch


def test_a_compressed_batch_is_read() -> None:
    (run,) = read(packed(encode_batch([(0, b"a", b"x" * 1_000, ())] * 3)))[0]

    assert run.payloads == [b"x" * 1_000] * 3


def test_a_marker_of_a_transaction_is_no_message() -> None:
    batch = encode_batch([(0, b"a", b"v", ())], attributes=CONTROL_MASK)
    assert read(batch) == ([], Counter())


STRETCHES = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b"]),
        st.none() | st.integers(0, 3),
        st.sampled_from([(), (("h", b"x"),)]),
        st.integers(1, 90),
    ),
    min_size=1,
    max_size=5,
)


def expected(batch: bytearray) -> list[tuple[bytes, int, bytes]]:
    """Return what the kernel's own codec reads, one record at a time."""
    return [(r.key or b"", r.offset, r.value or b"") for r in decode_batch(batch)]


def got(found: list[PublishRun]) -> list[tuple[bytes, int, bytes]]:
    return [
        (run.topic, run.base_offset + index, payload)
        for run in found
        for index, payload in enumerate(run.payloads)
    ]


@settings(max_examples=examples(100), deadline=None)
@given(stretches=STRETCHES)
def test_long_stretches_are_read_as_record_by_record(
    stretches: list[tuple[bytes, int | None, tuple[tuple[str, bytes], ...], int]],
) -> None:
    rows = [
        (0, key, None if size is None else b"%d" % (number % 10) * size, headers)
        for key, size, headers, count in stretches
        for number in range(count)
    ]
    batch = encode_batch(rows)
    stamp(batch, 1_000, 0)

    found, skipped = read(batch)

    assert got(found) == expected(batch)
    assert not skipped


@pytest.mark.parametrize("removed", range(0, 60, 7))
def test_a_gap_within_a_long_stretch_is_kept(removed: int) -> None:
    batch = compacted(encode_batch([(0, b"a", b"%02d" % n, ()) for n in range(60)]), removed)

    found, _ = read(batch)

    assert got(found) == expected(batch)


def test_offset_deltas_grow_to_three_bytes() -> None:
    batch = encode_batch([(0, b"a", b"%05d" % n, ()) for n in range(8_300)])

    (run,) = read(batch)[0]

    assert run.payloads == [b"%05d" % n for n in range(8_300)]


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data(), count=st.sampled_from([3, 40]))
def test_a_batch_that_lies_is_skipped_and_counted(data: st.DataObject, count: int) -> None:
    batch = encode_batch([(0, b"a", b"v%02d" % n, (("h", b"x"),)) for n in range(count)])
    at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))

    found, skipped = read(batch)

    try:
        records = expected(batch)
    except CorruptBatch:
        # A name that is not UTF-8 is shown all the same; nothing else comes of such a batch.
        assert skipped["corrupt_batch"] == 1 or "\ufffd" in str(messages(found))
        assert not (skipped["corrupt_batch"] and found)
    else:
        assert skipped["corrupt_batch"] == 0
        assert set(got(found)) <= set(records)
        assert len(got(found)) + skipped["no_topic_name"] == len(records)


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_a_wrong_record_count_is_a_corrupt_batch(count: int) -> None:
    batch = encode_batch([(0, b"a", b"v", ())] * 3)
    batch[57:61] = count.to_bytes(4, signed=True)
    assert read(batch) == ([], Counter({"corrupt_batch": 1}))


def test_headers_of_one_form_are_encoded_once() -> None:
    routed = ROUTES.find(b"a", 1)
    one, other = PublishRun(b"a", [b"1"], qos=1), PublishRun(b"a", [b"2"], qos=1)

    assert header_block(one, routed, client_id="c") is header_block(
        other, routed, client_id="c"
    )
    assert header_block(one, routed, client_id="c") != header_block(one, routed, client_id="d")


def test_huge_headers_are_encoded_each_time() -> None:
    properties = PublishProperties(content_type="x" * (CACHED_BLOCK_BYTES_MAX + 1))
    run, routed = PublishRun(b"a", [b""], properties=properties), ROUTES.find(b"a", 0)

    first = header_block(run, routed, client_id="c")

    assert header_block(run, routed, client_id="c") == first
    assert header_block(run, routed, client_id="c") is not first


# Reading only what somebody wants.

LONG = b"long/" * 30
KEYS = st.sampled_from(
    [b"a", b"b", b"a/b", "é".encode(), LONG, b"$x", b"", b"mqtt.topic", None]
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["h", "mqtt.topic", "mqtt.client", "xmqtt.topic"]),
        st.none() | st.sampled_from([b"a", b"b", "é".encode(), b"$x", b"a/#", b"", LONG]),
    ),
    max_size=3,
).map(tuple)
VALUES = st.none() | st.sampled_from(
    [b"", b"v", b"\x14mqtt.topic\x02a", b"x" * 70, b"x" * 9_000]
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 1_000, -5, 10**6]), KEYS, VALUES, HEADERS, st.integers(1, 70)
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    rows=ROWS,
    wanted=st.frozensets(st.sampled_from([b"a", b"b", b"a/b", "é".encode(), LONG, b""])),
    start=st.integers(0, 100),
    is_packed=st.booleans(),
)
def test_what_is_wanted_is_what_is_left_of_all(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]],
    wanted: frozenset[bytes],
    start: int,
    is_packed: bool,  # noqa: FBT001 - hypothesis draws it
) -> None:
    records = [
        (time, key, value, headers) for time, key, value, headers, n in rows for _ in range(n)
    ]
    plain = encode_batch(records)
    stamp(plain, 50, 0)
    batch = packed(plain) if is_packed else plain
    everything, skipped_of_all = read(batch, from_offset=start)

    found, skipped = read(batch, from_offset=start, wants=wanted.__contains__)

    kept = [run for run in everything if run.topic in wanted]
    assert messages(found) == messages(kept)
    assert [run.base_offset for run in found] == [run.base_offset for run in kept]
    assert skipped <= skipped_of_all


@settings(max_examples=examples(300), deadline=None)
@given(
    rows=ROWS,
    rounds=st.integers(1, 40),
    wanted=st.none() | st.frozensets(st.sampled_from([b"a", b"b", b"a/b", LONG])),
    start=st.integers(0, 60),
)
def test_topics_that_take_turns_are_the_same_messages(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]],
    rounds: int,
    wanted: frozenset[bytes] | None,
    start: int,
) -> None:
    records = [
        (time, key, value, headers)
        for _ in range(rounds)
        for time, key, value, headers, n in rows
        for _ in range(n % 7)
    ]
    batch = encode_batch(records or [(0, b"a", b"", ())])
    stamp(batch, 50, 0)
    wants = None if wanted is None else wanted.__contains__
    plain, skipped = read(batch, from_offset=start, wants=wants)
    skipped_of_mixed: Counter[str] = Counter()

    mixed = mixed_runs_of_batch(
        batch, ROUTE, from_offset=start, skipped=skipped_of_mixed, wants=wants
    )

    flat: list[PublishRun] = []
    for one in mixed:
        flat += (
            one.runs(range(len(one.payloads))) if isinstance(one, MixedTopicBatch) else [one]
        )
    assert messages(flat) == messages(plain)
    assert skipped_of_mixed == skipped


def test_a_mixed_topics_is_no_longer_than_it_may_be_and_ends_where_a_topic_stays() -> None:
    turns = [b"%d" % (n % 3) for n in range(MIXED_TOPICS_MAX + 100)]
    batch = encode_batch([(0, topic, b"v", ()) for topic in [*turns, *[b"stays"] * 50]])

    found = mixed_runs_of_batch(batch, ROUTE, from_offset=0, skipped=Counter())

    counts = [len(one.payloads) for one in found if isinstance(one, MixedTopicBatch)]
    assert counts[0] == MIXED_TOPICS_MAX
    assert sum(counts) >= len(turns) - 2
    assert isinstance(found[-1], PublishRun)
    assert len(found[-1].payloads) > 40


def test_the_payloads_of_a_mixed_topics_are_bounded_in_bytes() -> None:
    payload = bytes(MIXED_TOPICS_BYTES_MAX // 8)
    batch = encode_batch([(0, b"%d" % (n % 3), payload, ()) for n in range(30)])

    found = mixed_runs_of_batch(batch, ROUTE, from_offset=0, skipped=Counter())

    counts = [len(one.payloads) for one in found]
    assert sum(counts) == 30
    assert max(counts) == 8


@pytest.mark.parametrize("topic", [b"k/x", "k/é".encode()])
def test_a_topic_in_the_headers_is_wanted_or_not_by_its_own_name(topic: bytes) -> None:
    run, other = PublishRun(topic, [b"1"]), PublishRun(b"k/other", [b"2"])
    batch = encode_runs([records_of(other), records_of(run), records_of(other)])
    route = ROUTES.find(topic, 1).route

    (found,) = read(batch, route=route, wants=topic.__eq__)[0]

    assert (found.topic, found.base_offset, found.payloads) == (topic, 1, [b"1"])


def test_what_is_passed_over_is_not_decoded() -> None:
    records = [(0, b"b", b"v%d" % n, (("h", b"x"),)) for n in range(9)]
    batch = encode_batch([*records, (0, b"a", b"last", ())])
    batch[batch.index(b"v5") - 1] = 0x7E  # the value's length, in a record that nobody wants

    assert read(batch)[1] == {"corrupt_batch": 1}
    ((run,), skipped) = read(batch, wants=b"a".__eq__)
    assert (run.base_offset, run.payloads) == (9, [b"last"])
    assert not skipped


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_lies_about_lengths_end_the_reading_of_wanted_records(data: st.DataObject) -> None:
    batch = encode_batch([(0, b"ab"[n % 2 :][:1], b"v%02d" % n, ()) for n in range(20)])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))

    found, skipped = read(batch, wants=b"a".__eq__)

    assert all(run.topic == b"a" for run in found)
    assert not (skipped["corrupt_batch"] and found)
