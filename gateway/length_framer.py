"""Length framing: cuts a stream into frames that follow their size, for any protocol. No I/O."""

import struct
from typing import Final

from gateway.errors import PeerError

DIRECT_BYTES_MIN: Final = 64 * 1024  # from here on a frame is read in place, without a copy

_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = 4
_FIRST_BYTES: Final = 2 * DIRECT_BYTES_MIN
_GROWTH: Final = 4


class LengthFramer:
    """Cuts a stream of bytes into frames: a size (int32), then as many bytes.

    Small frames are copied out of the shared buffer. The rest of a large frame is read into a
    buffer of its own, which grows as bytes arrive: to four times the bytes received, or to the
    size of the largest frame completed so far. So an announced size alone allocates nothing.
    The caller owns the frames that are returned and may change them. ``bytes_min`` and
    ``bytes_max`` are the sizes of the smallest and the largest frame that are accepted.
    """

    __slots__ = (
        "_filled",
        "_frame",
        "_head",
        "_is_direct",
        "_proven_bytes",
        "_shared",
        "_size_bytes",
        "_start",
        "_view",
        "bytes_max",
        "bytes_min",
    )

    def __init__(self, shared: memoryview, *, bytes_min: int, bytes_max: int) -> None:
        self._shared = shared
        self.bytes_min = bytes_min
        self.bytes_max = bytes_max
        self._size_bytes = 0  # of the incomplete frame; 0 between frames
        self._frame: bytearray | None = None
        self._start = b""  # first bytes of a large frame, before it has a buffer
        self._filled = 0
        self._head = b""
        self._is_direct = False
        self._view: memoryview | None = None  # of the frame: the part last read into
        self._proven_bytes = _FIRST_BYTES  # of the largest frame that was completed

    @property
    def is_midway(self) -> bool:
        """True while a frame has begun and is not complete."""
        return self._size_bytes > 0 or bool(self._head)

    @property
    def kept_bytes(self) -> int:
        """Size of the incomplete frame's buffer, or the size that the next bytes will give it."""
        if self._frame is None:
            return self._room_for(len(self._start)) if self._size_bytes else 0
        if len(self._frame) - self._filled >= DIRECT_BYTES_MIN:
            return len(self._frame)
        return self._room_for(self._filled)

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        if self._size_bytes and (self._frame is None or self._is_nearly_full()):
            self._grow(self._filled or len(self._start))
        frame = self._frame
        self._is_direct = frame is not None and len(frame) - self._filled >= DIRECT_BYTES_MIN
        if not self._is_direct:
            return self._shared
        self._view = memoryview(frame)[self._filled :]  # type: ignore[arg-type]  # is_direct says so
        return self._view

    def received(self, size_bytes: int) -> list[memoryview]:
        """Process the bytes read into ``buffer``; return the frames that are complete now.

        Error: ``PeerError`` for a size out of bounds.
        """
        if self._is_direct:
            self._filled += size_bytes
            return self._take_if_full()
        data = self._shared[:size_bytes]
        frames = []
        if self._frame is not None:
            part = data[: self._size_bytes - self._filled]
            if len(self._frame) < self._filled + len(part):
                self._grow(self._filled + len(part))
            self._frame[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            data = data[len(part) :]
            frames = self._take_if_full()
        self._cut(data, frames)
        return frames

    def _is_nearly_full(self) -> bool:
        assert self._frame is not None
        return len(self._frame) - self._filled < min(
            DIRECT_BYTES_MIN, self._size_bytes - self._filled
        )

    def _room_for(self, filled: int) -> int:
        """Return the buffer size of the incomplete frame after ``filled`` bytes have arrived."""
        return min(self._size_bytes, max(self._proven_bytes, _GROWTH * filled))

    def _grow(self, filled: int) -> None:
        room_bytes = self._room_for(filled)
        if self._frame is None:
            self._filled = len(self._start)
            self._frame = bytearray(room_bytes)
            self._frame[: self._filled] = self._start
            self._start = b""
        else:  # in place: no copy, and the pages stay mapped
            if self._view is not None:
                self._view.release()  # a bytearray with a view on it cannot grow
            self._frame.extend(bytes(room_bytes - len(self._frame)))

    def _take_if_full(self) -> list[memoryview]:
        if self._frame is None or self._filled < self._size_bytes:
            return []
        frame, self._frame = self._frame, None
        self._view = None
        self._proven_bytes = max(self._proven_bytes, self._size_bytes)
        self._size_bytes = 0
        return [memoryview(frame)]

    def _cut(self, data: memoryview, frames: list[memoryview]) -> None:
        if self._head and len(data):
            data = memoryview(self._head + bytes(data))
            self._head = b""
        at, end = 0, len(data)
        while end - at >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data, at)
            if not self.bytes_min <= size <= self.bytes_max:
                msg = (
                    f"a request of {size} bytes; {self.bytes_min} to {self.bytes_max} are taken"
                )
                raise PeerError(msg)
            at += _SIZE_BYTES
            if end - at < size:
                self._size_bytes = size
                self._start = bytes(data[at:end])
                return
            frames.append(memoryview(bytearray(data[at : at + size])))
            at += size
        self._head = bytes(data[at:end])
