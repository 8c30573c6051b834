"""Ids of messages: of their place, in a UUID's form, never the same twice."""

from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.records.message_ids import message_id, message_ids

TOPIC = UUID(int=0x1234_5678_9ABC_DEF0_1111_2222_3333_4444)
OFFSETS = st.integers(0, (1 << 63) - 1)


@given(OFFSETS, OFFSETS)
def test_an_id_is_a_uuid_of_its_own(one: int, other: int) -> None:
    ids = message_id(TOPIC, 3, one), message_id(TOPIC, 3, other)

    assert str(UUID(ids[0])) == ids[0]
    assert (ids[0] == ids[1]) == (one == other)
    assert ids[0] == message_ids(TOPIC, 3).at(one)


def test_partitions_and_topics_have_others() -> None:
    places = [(TOPIC, 0), (TOPIC, 1), (UUID(int=7), 0)]
    halves = {message_id(topic, number, 5)[:18] for topic, number in places}
    assert len(halves) == len(places)


@given(st.integers(0, (1 << 63) - 300), st.integers(1, 256))
@example((1 << 48) - 2, 4)
@example((7 << 48) - 1, 2)
def test_ids_of_a_row_are_those_of_its_messages(first: int, count: int) -> None:
    ids = message_ids(UUID(int=7), 3)
    assert ids.row(first, count) == [
        ids.at(offset).encode() for offset in range(first, first + count)
    ]
