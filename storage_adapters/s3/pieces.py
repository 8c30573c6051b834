"""Builder of an object's body: large pieces uncopied, small ones joined."""

from collections import Counter
from typing import Final

from gateway.model import Buffer

COPIED_BYTES_MAX: Final = 16_384  # a separate slice costs about 200 bytes of memory, and time
CHUNK_BYTES: Final = 262_144  # of copied data
HELD_TIMES_MAX: Final = 2  # memory that a view may keep alive, as a multiple of its size


class Pieces:
    """Bytes in order. A view that was added must not change any more."""

    def __init__(self) -> None:
        self._body: list[Buffer] = []
        self._small: list[Buffer] = []
        self._small_bytes = 0

    def add(self, data: Buffer) -> None:
        """Append bytes."""
        if len(data) > COPIED_BYTES_MAX:
            self._join_small()
            self._body.append(data)
            return
        self._small.append(data)
        self._small_bytes += len(data)
        if self._small_bytes >= CHUNK_BYTES:
            self._join_small()

    def finish(self) -> list[Buffer]:
        """Return all pieces; no more may be added."""
        self._join_small()
        return _without_ballast(self._body)

    def _join_small(self) -> None:
        if self._small:
            self._body.append(b"".join(self._small))
            self._small.clear()
            self._small_bytes = 0


def _without_ballast(body: list[Buffer]) -> list[Buffer]:
    """Copy small views that would keep large request buffers alive."""
    shown = Counter[int]()
    for piece in body:
        if isinstance(piece, memoryview):
            shown[id(piece.obj)] += len(piece)
    return [
        bytes(piece)
        if isinstance(piece, memoryview)
        and memoryview(piece.obj).nbytes > HELD_TIMES_MAX * shown[id(piece.obj)]
        else piece
        for piece in body
    ]
