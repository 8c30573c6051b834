"""Limit of fetch responses while producers append, so that large reads do not delay them.

A response is written at once, and megabytes take milliseconds of the loop. A consumer that is far
behind requests as much as it can get; while producers append it receives smaller responses.
"""

from typing import Final

from gateway.append_queue import AppendQueue

BESIDE_APPENDS_BYTES: Final = 1024 * 1024


class FetchPacing:
    """Limits a response when batches were appended since the one before."""

    def __init__(self, append_queue: AppendQueue) -> None:
        self._append_queue = append_queue
        self._seen_batches = -1

    def bytes_max(self, asked_bytes: int) -> int:
        """Return the size limit of the next response, at most ``asked_bytes``."""
        appended_batches = self._append_queue.batches_appended
        is_beside = appended_batches != self._seen_batches
        self._seen_batches = appended_batches
        return min(asked_bytes, BESIDE_APPENDS_BYTES) if is_beside else asked_bytes
