"""How large an answer to a fetch may be: small beside producers, so that they need not wait.

An answer is written in one go, and megabytes take milliseconds of the loop. A reader who is far
behind asks for all it can get, again and again; while somebody appends he gets it in pieces.
"""

from typing import Final

from gateway.writer import Writer

BESIDE_APPENDS_BYTES: Final = 1024 * 1024


class FetchPacing:
    """Tells whether anything was appended since the last answer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._seen_batches = -1

    def bytes_max(self, asked_bytes: int) -> int:
        """Return how much the next answer may hold, at most what was asked for."""
        appended_batches = self._writer.batches_appended
        is_beside = appended_batches != self._seen_batches
        self._seen_batches = appended_batches
        return min(asked_bytes, BESIDE_APPENDS_BYTES) if is_beside else asked_bytes
