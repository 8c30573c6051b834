"""Varints of many records at once, against one at a time."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.model import encode_varint, read_varint
from pipeline.log.varints import varints

_LIMIT = 2**63
_NUMBERS = st.one_of(
    st.integers(-64, 63), st.integers(-8_192, 8_191), st.integers(-_LIMIT, _LIMIT - 1)
)


@given(st.lists(_NUMBERS, min_size=1, max_size=50))
def test_all_are_what_each_is(numbers: list[int]) -> None:
    pieces = [encode_varint(number) for number in numbers]
    data = np.frombuffer(b"".join(pieces), np.uint8)
    ends = np.array(list(accumulate(map(len, pieces))), np.int64)
    at = np.concatenate([[0], ends[:-1]])

    found, found_ends = varints(data, at)

    assert found.tolist() == numbers
    assert found_ends.tolist() == ends.tolist()


@given(st.binary(min_size=1, max_size=40))
@example(bytes.fromhex("80808080808080808002"))
@example(bytes.fromhex("ffffffffffffffffff7f"))
def test_from_any_place_of_any_bytes(raw: bytes) -> None:
    data = np.frombuffer(raw, np.uint8)
    found, ends = varints(data, np.arange(len(raw)))

    for place, (number, end) in enumerate(zip(found.tolist(), ends.tolist(), strict=True)):
        try:
            assert (number, end) == read_varint(raw, place)
        except IndexError:  # it goes on past the end, or for more than ten bytes
            assert end > len(raw) or end == place + 10


@pytest.mark.parametrize("beyond", [0, 1, 1_000])
def test_places_past_the_end_are_read_as_something(beyond: int) -> None:
    data = np.frombuffer(b"\x80", np.uint8)
    _, ends = varints(data, np.array([1 + beyond]))

    assert ends[0] > len(data) + beyond
