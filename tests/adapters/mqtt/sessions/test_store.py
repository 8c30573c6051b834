"""Records of a session are read as they were written; unreadable ones are reported."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt.inflight.outbox import Inflight
from adapters.mqtt.ports import SessionPort
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.sessions.journal import decode_runs, encode_runs
from adapters.mqtt.sessions.state_records import decode_group, decode_state, encode_state
from adapters.mqtt.sessions.store import (
    ENDED_KEY,
    FILTER_KEY,
    GROUP_KEY,
    RUN_KEY,
    STATE_KEY,
    ended_key,
    filter_key,
    group_key,
    parse_key,
    run_key,
    state_key,
)
from adapters.mqtt.sessions.subscription_records import (
    decode_ended,
    decode_subscription,
    encode_ended,
    encode_subscription,
)
from adapters.mqtt.subscriptions.ended import EndedSubscription
from adapters.mqtt.subscriptions.subscription import Subscription
from adapters.mqtt.wire import PublishProperties, Will
from features.ranges import RangeSet
from gateway.errors import CorruptBatch

TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30
)
U32 = st.integers(0, 2**32 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
POSITIONS = st.dictionaries(U32, OFFSETS, max_size=5)
RUNS = st.builds(
    Inflight,
    first_seq=st.integers(0, 2**63),
    length=st.integers(1, 65_535),
    partition_id=st.integers(-1, 2**32),
    first_offset=st.integers(-1, 2**62),
    qos=st.sampled_from([1, 2]),
    retain=st.booleans(),
    identifiers=st.lists(st.integers(1, 268_435_455), max_size=4).map(tuple),
    group=st.one_of(st.just(""), TEXTS),
    topics=st.lists(st.binary(min_size=1, max_size=20), max_size=3).map(tuple),
)
WILL = Will(
    "last/words",
    b"\0gone",
    qos=2,
    retain=True,
    properties=PublishProperties(content_type="t", user_properties=(("a", "b"), ("a", "c"))),
    delay_interval=7,
)


def session(positions: dict[int, int]) -> ClientSession:
    lanes = SimpleNamespace(new_holder=lambda: 2)
    context = SimpleNamespace(
        positions_of=lambda _: positions, lanes=lanes, receiver_bytes_max=1
    )
    return ClientSession("c", cast("Any", context))


def ranges_of(seqs: set[int]) -> RangeSet:
    ranges = RangeSet()
    for seq in seqs:
        ranges.add(seq, seq)
    return ranges


@given(
    username=st.one_of(st.none(), st.just(""), TEXTS),
    will=st.sampled_from([None, WILL]),
    expiry_s=U32,
    disconnected_unix_ms=OFFSETS,
    base=st.integers(0, 2**40),
    done=st.sets(OFFSETS, max_size=5),
    received=st.sets(OFFSETS, max_size=5),
    positions=POSITIONS,
    listed=st.none() | st.dictionaries(st.integers(1, 65_535), st.integers(0, 1_023)),
)
def test_a_state_comes_back(  # noqa: PLR0917 - the fields of a state
    username: str | None,
    will: Will | None,
    expiry_s: int,
    disconnected_unix_ms: int,
    base: int,
    done: set[int],
    received: set[int],
    positions: dict[int, int],
    listed: dict[int, int] | None,
) -> None:
    one = session(positions)
    if listed is not None:
        one.inbound.shards.update(listed)
        one.inbound.list_all((7, 1 << 40))
    one.username, one.will, one.expiry_s = username, will, expiry_s
    one.disconnected_unix_ms = disconnected_unix_ms
    one.outbox.base, one.outbox.next_seq = base, base + 9
    one.outbox.done, one.outbox.received = ranges_of(done), received
    found = decode_state(encode_state(one))
    fields = found._asdict() | {"done": list(found.done)}
    inbound = fields.pop("inbound")
    assert (inbound.shards, inbound.listed) == (listed or {}, frozenset(listed or ()))
    assert inbound.listed_to == one.inbound.listed_to
    assert tuple(fields.values()) == (
        expiry_s,
        disconnected_unix_ms,
        username,
        will,
        base,
        base + 9,
        list(ranges_of(done)),
        tuple(sorted(received)),
        positions,
    )


def test_a_state_that_lists_what_is_settled_one_by_one_is_read() -> None:
    """As it was written before."""
    head = b"\0" + b"\0\0\0\7" + b"\0" * 8 + b"\0\0" + b"\0\0\0\0"
    sequences = b"".join(n.to_bytes(8) for n in (5, 12))
    settled = b"\0\0\0\3" + b"".join(n.to_bytes(8) for n in (6, 7, 9))
    received = b"\0\0\0\1" + (8).to_bytes(8)
    found = decode_state(head + sequences + settled + received + b"\0\0\0\0")
    assert list(found.done) == [(6, 7), (9, 9)]
    assert (found.expiry_s, found.base, found.next_seq, found.received) == (7, 5, 12, (8,))


def test_a_state_costs_by_what_is_not_settled() -> None:
    one = session({})
    before = len(encode_state(one))
    one.outbox.next_seq = 65_000
    one.outbox.done = ranges_of(set(range(1, 65_000)))
    assert len(encode_state(one)) < before + 32


@given(st.lists(RUNS, min_size=1, max_size=5))
def test_runs_come_back_with_their_sequence_numbers_running_on(found: list[Inflight]) -> None:
    runs = []
    next_seq = found[0].first_seq
    for run in found:
        runs.append(run._replace(first_seq=next_seq, attempt=0))  # it is the lane that knows
        next_seq += run.length
    assert decode_runs(runs[0].first_seq, encode_runs(runs)) == runs


@given(
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    retain_handling=st.integers(0, 2),
    identifier=st.integers(0, 268_435_455),
    starts=POSITIONS,
)
def test_a_subscription_comes_back(**options: Any) -> None:
    one = Subscription("a/+", group="g", **options)
    found = decode_subscription("a/+", "g", encode_subscription(one))
    for name in Subscription.__slots__:
        assert getattr(found, name) == getattr(one, name)


@given(
    qos=st.integers(1, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    identifier=st.integers(0, 268_435_455),
    topic_filter=TEXTS,
    spans=st.dictionaries(U32, st.tuples(OFFSETS, OFFSETS), max_size=5),
)
def test_an_ended_subscription_comes_back(
    topic_filter: str, spans: dict[int, tuple[int, int]], **options: Any
) -> None:
    owner = session({})
    one: EndedSubscription[SessionPort] = EndedSubscription(
        owner,
        9,
        Subscription(topic_filter, **options),
        starts={number: start for number, (start, _) in spans.items()},
        ends={number: end for number, (_, end) in spans.items()},
    )
    found = decode_ended(owner, 9, encode_ended(one))
    assert (found.session, found.number) == (owner, 9)
    assert (found.starts, found.ends) == (one.starts, one.ends)
    for name in Subscription.__slots__:
        assert getattr(found.subscription, name) == getattr(one.subscription, name)


@given(name=TEXTS, written=TEXTS, seq=st.integers(0, 2**64 - 1))
def test_keys_come_apart_again(name: str, written: str, seq: int) -> None:
    assert parse_key(state_key(name)) == (name, b"")
    assert parse_key(filter_key(name, written)) == (name, written.encode())
    assert parse_key(run_key(name, seq)) == (name, seq.to_bytes(8, "big"))
    assert parse_key(group_key(name, written)) == (name, written.encode())
    assert parse_key(ended_key(name, seq)) == (name, seq.to_bytes(8, "big"))
    kinds = [state_key(name), filter_key(name, written), run_key(name, seq)]
    kinds += [group_key(name, written), ended_key(name, seq)]
    firsts = [key[:1] for key in kinds]
    assert firsts == [STATE_KEY, FILTER_KEY, RUN_KEY, GROUP_KEY, ENDED_KEY]


RUN = encode_runs(
    [Inflight(0, 3, 1, 10, 1, identifiers=(1, 2), group="$share/g/t", topics=(b"topic",))]
)
SUBSCRIPTION = encode_subscription(Subscription("t", qos=1, starts={1: 5, 2: 6}))
ENDED = encode_ended(
    EndedSubscription(
        session({}), 1, Subscription("t/#", qos=1), starts={1: 5, 2: 6}, ends={1: 9, 2: 7}
    )
)
GROUP = b"\0" + b"\0\0\0\1" + b"\0\0\0\7" + b"\0" * 7 + b"\x09"


def state() -> bytes:
    one = session({1: 2, 3: 4})
    one.username, one.will = "user", WILL
    one.outbox.base, one.outbox.next_seq = 5, 9
    one.outbox.done, one.outbox.received = ranges_of({6}), {7}
    return encode_state(one)


@pytest.mark.parametrize(
    ("value", "decode"),
    [
        (state(), decode_state),
        (RUN, lambda value: decode_runs(0, value)),
        (SUBSCRIPTION, lambda value: decode_subscription("t", None, value)),
        (ENDED, lambda value: decode_ended(session({}), 1, value)),
        (GROUP, decode_group),
    ],
    ids=["state", "run", "subscription", "ended", "group"],
)
def test_a_value_that_is_cut_or_of_a_later_version_is_corrupt(
    value: bytes, decode: Any
) -> None:
    decode(value)
    for size in range(len(value)):
        with pytest.raises(CorruptBatch):
            decode(value[:size])
    with pytest.raises(CorruptBatch):
        decode(b"\x7f" + value[1:])


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_corrupt(data: bytes) -> None:
    for decode in (
        decode_state,
        decode_group,
        lambda value: decode_runs(0, value),
        lambda value: decode_subscription("t", None, value),
        lambda value: decode_ended(session({}), 1, value),
    ):
        for value in (data, b"\0" + data):
            try:
                decode(value)
            except CorruptBatch:
                continue


def test_a_state_with_any_byte_changed_is_read_or_corrupt() -> None:
    value = state()
    for at in range(len(value)):
        for byte in (0, 0x7F, 0xFF):
            changed = value[:at] + bytes((byte,)) + value[at + 1 :]
            try:
                decode_state(changed)
            except CorruptBatch:
                continue
