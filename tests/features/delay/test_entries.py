"""Entries of the stream: what is written is read, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.delay.entries import (
    ENDED,
    RUN,
    Ended,
    Purged,
    count_of,
    decode_other,
    encode_purged,
    encode_removed,
    encode_waiting,
    is_waiting,
    parse_waiting,
)
from gateway.errors import CorruptBatch
from gateway.records.codec import encode_batch

u64 = st.integers(0, (1 << 64) - 1)
uuids = st.binary(min_size=16, max_size=16)


@given(
    u64,
    u64,
    uuids,
    st.integers(0, (1 << 32) - 1),
    st.integers(-1, 1 << 62),
    st.binary(min_size=1),
)
def test_a_message_comes_out_as_it_went_in(  # noqa: PLR0917
    due: int, number: int, uuid: bytes, partition: int, timestamp: int, tail: bytes
) -> None:
    value = encode_waiting(due, number, uuid, partition, timestamp, tail)
    assert is_waiting(value)
    assert count_of(value) == 0
    assert parse_waiting(value) == (due, number, uuid, partition, timestamp, tail)


@given(u64, uuids, st.integers(1, 300))
def test_a_run_comes_out_as_it_went_in(number: int, uuid: bytes, count: int) -> None:
    batch = bytes(encode_batch([(5, None, b"v", ())] * count))
    value = encode_waiting(7, number, uuid, 1, 5, batch, kind=RUN)
    assert is_waiting(value)
    assert count_of(value) == count
    assert parse_waiting(value) == (7, number, uuid, 1, 5, batch)


@given(st.lists(u64), uuids, u64)
def test_other_entries_come_out_as_they_went_in(
    numbers: list[int], uuid: bytes, below: int
) -> None:
    assert decode_other(encode_removed(numbers)) == tuple(numbers)
    assert decode_other(encode_removed(numbers, kind=ENDED)) == Ended(tuple(numbers))
    assert decode_other(encode_purged(uuid, below)) == Purged(uuid, below)


@pytest.mark.parametrize(
    "value",
    [b"", b"\x01", b"\x01" * 45, b"\x02abc", b"\x03", b"\x09" * 60, b"\x04" * 45, b"\x05a"],
)
def test_anything_else_is_corrupt(value: bytes) -> None:
    assert not is_waiting(value)
    with pytest.raises(CorruptBatch):
        decode_other(value)


def test_the_layout_is_the_documented_one() -> None:
    value = encode_waiting(1, 2, b"u" * 16, 3, -1, b"tail")
    numbers = ["01", "0000000000000001", "0000000000000002", b"u".hex() * 16]
    numbers += ["00000003", "ffffffffffffffff", b"tail".hex()]
    assert value.hex() == "".join(numbers)
    assert encode_waiting(1, 2, b"u" * 16, 3, -1, b"tail", kind=RUN) == b"\x04" + value[1:]
    assert encode_removed([1], kind=ENDED).hex() == "05" + "0000000000000001"
    assert encode_removed([1, 258]).hex() == "02" + "0000000000000001" + "0000000000000102"
