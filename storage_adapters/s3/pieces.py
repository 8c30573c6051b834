"""The body of an object in the making: large pieces as they came, small ones joined."""

from typing import Final

from gateway.model import Octets

COPIED_BYTES_MAX: Final = (
    16_384  # a slice of its own costs about 200 octets of memory, and time
)
CHUNK_BYTES: Final = 262_144  # of what is copied


class Pieces:
    """Octets in order. What is added as a view must not change any more."""

    def __init__(self) -> None:
        self._body: list[Octets] = []
        self._small: list[Octets] = []
        self._small_bytes = 0

    def add(self, octets: Octets) -> None:
        """Go on with octets."""
        if len(octets) > COPIED_BYTES_MAX:
            self._join_small()
            self._body.append(octets)
            return
        self._small.append(octets)
        self._small_bytes += len(octets)
        if self._small_bytes >= CHUNK_BYTES:
            self._join_small()

    def finish(self) -> list[Octets]:
        """Return all of it; nothing is added any more."""
        self._join_small()
        return self._body

    def _join_small(self) -> None:
        if self._small:
            self._body.append(b"".join(self._small))
            self._small.clear()
            self._small_bytes = 0
