"""Framing of a stream, for every way in which its bytes can arrive."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import PeerError
from gateway.length_framer import DIRECT_BYTES_MIN, LengthFramer

BYTES_MAX = 1 << 20


def feed(framer: LengthFramer, data: bytes, cuts: list[int]) -> list[bytes]:
    """Pass bytes in as a socket does: at most as many as the buffer holds."""
    frames = []
    for cut in [*cuts, len(data)]:
        chunk, data = data[:cut], data[cut:]
        while chunk:
            buffer = framer.buffer()
            part, chunk = chunk[: len(buffer)], chunk[len(buffer) :]
            buffer[: len(part)] = part
            frames += [bytes(frame) for frame in framer.received(len(part))]
    return frames


def framed(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@given(
    st.lists(st.binary(min_size=8, max_size=40), max_size=10),
    st.lists(st.integers(0, 30), max_size=20),
    st.integers(4, 64),
)
def test_any_cut_of_the_stream_gives_the_same_frames(
    frames: list[bytes], cuts: list[int], buffer_bytes: int
) -> None:
    framer = LengthFramer(memoryview(bytearray(buffer_bytes)), bytes_min=8, bytes_max=BYTES_MAX)
    assert feed(framer, framed(frames), cuts) == frames
    assert not framer.is_midway


@pytest.mark.parametrize("size", [DIRECT_BYTES_MIN - 1, 3 * DIRECT_BYTES_MIN, BYTES_MAX])
def test_large_frames_are_read_in_place_and_whole(size: int) -> None:
    frame = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    framer = LengthFramer(memoryview(bytearray(4096)), bytes_min=8, bytes_max=BYTES_MAX)
    assert feed(framer, framed([frame, b"after it", frame]), [7, 5000]) == [
        frame,
        b"after it",
        frame,
    ]


def test_a_half_frame_is_midway() -> None:
    framer = LengthFramer(memoryview(bytearray(64)), bytes_min=8, bytes_max=BYTES_MAX)
    assert feed(framer, framed([b"12345678"])[:3], []) == []
    assert framer.is_midway


@pytest.mark.parametrize("size", [-1, 0, 7, BYTES_MAX + 1, 2**31 - 1])
def test_sizes_out_of_bounds_are_the_peers_fault(size: int) -> None:
    framer = LengthFramer(memoryview(bytearray(64)), bytes_min=8, bytes_max=BYTES_MAX)
    with pytest.raises(PeerError):
        feed(framer, struct.pack(">i", size) + b"12345678", [])


def test_an_announced_size_costs_nothing_until_its_bytes_come() -> None:
    framer = LengthFramer(memoryview(bytearray(4096)), bytes_min=8, bytes_max=BYTES_MAX)
    assert feed(framer, struct.pack(">i", BYTES_MAX) + b"1234", []) == []
    assert (framer._size_bytes, framer._frame) == (BYTES_MAX, None)
    framer.buffer()
    assert framer._frame is not None
    assert feed(framer, bytes(BYTES_MAX - 4), []) == [b"1234" + bytes(BYTES_MAX - 4)]
    assert framer._size_bytes == 0
