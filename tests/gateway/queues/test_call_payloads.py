"""Payloads of the service ``queue`` survive the way over bytes; other bytes are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.queue.model import BY_TIME, Outcome
from gateway.model import Record
from gateway.queues.browsing import Browsed
from gateway.queues.call_payloads import (
    NO_HOLDER,
    BrowsedMessages,
    BrowseMessages,
    CountedPartitions,
    CountMessages,
    Holder,
    PartitionCounts,
    PurgeMessages,
    QueueCodec,
    QueueRef,
    SettledCounts,
    SettledOffsets,
    SettleMessages,
)

CODEC = QueueCodec()
MAX = (1 << 63) - 1
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
number = st.integers(0, MAX)
data = st.none() | st.binary(max_size=40)
ref = st.builds(QueueRef, st.uuids(), text)
record = st.builds(
    Record,
    number,
    st.integers(-MAX, MAX),
    data,
    data,
    st.lists(st.tuples(text, data), max_size=3).map(tuple),
)
settled = st.builds(SettledOffsets, number, number, number, st.sampled_from(Outcome))
requests = st.one_of(
    st.builds(CountMessages, ref, st.lists(number).map(tuple)),
    st.builds(BrowseMessages, ref, number, st.none() | number, number),
    st.builds(PurgeMessages, ref, st.lists(st.tuples(number, number)).map(tuple)),
    st.builds(
        SettleMessages,
        ref,
        number,
        st.builds(Holder, number, number, number),
        st.lists(settled).map(tuple),
        number,
        text,
    ),
)
counts = st.builds(PartitionCounts, number, number, number, number, number)
browsed = st.builds(Browsed, number, st.sampled_from(["ready", "in_flight"]), record)
replies = st.one_of(
    st.builds(CountedPartitions, st.lists(counts).map(tuple)),
    st.builds(BrowsedMessages, st.lists(browsed, max_size=3).map(tuple), st.booleans()),
    st.builds(SettledCounts, st.lists(number).map(tuple)),
)


@given(requests)
def test_a_request_comes_back_from_its_bytes(payload: object) -> None:
    found = CODEC.decode_request(CODEC.encode_request(payload))
    assert (type(found), found) == (type(payload), payload)


@given(replies)
def test_a_reply_comes_back_from_its_bytes(payload: object) -> None:
    found = CODEC.decode_reply(CODEC.encode_reply(payload))
    assert (type(found), found) == (type(payload), payload)


@given(requests, st.data())
def test_a_request_that_is_cut_is_refused(payload: object, chance: st.DataObject) -> None:
    whole = CODEC.encode_request(payload)
    end = chance.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match=r".+"):
        CODEC.decode_request(whole[:end])


@pytest.mark.parametrize("bad", [b"\x09[]", b"\x00{}", b"\x03[1]", b"\x01[[1,2],3]"])
def test_other_bytes_are_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        CODEC.decode_request(bad)


def test_holders_differ_from_each_other_and_from_connections_of_the_node() -> None:
    holders = [Holder(n, c, e) for n in (1, 2) for c in (1, 2) for e in (1, 2)]
    numbers = {one.number for one in holders}
    assert len(numbers) == len(holders)
    assert min(numbers) > MAX
    assert NO_HOLDER.number == BY_TIME
