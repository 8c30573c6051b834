"""Records of a lane's snapshot: those of its pieces, and that of its end."""

from typing import Final, NamedTuple

from gateway.queues.journal_entries import PIECE, SNAPSHOT
from gateway.records.codec import encode_headers
from gateway.records.record_run import RecordRun

PIECE_BYTES_MAX: Final = 512 * 1024  # of a snapshot: an append of it fits any segment

_SNAPSHOT_HEADERS: Final = encode_headers([(SNAPSHOT, None)])
_NUMBER_BYTES: Final = 4


class SnapshotRuns(NamedTuple):
    """Runs of one record each; ``pieces`` are appended before the ``end``."""

    pieces: list[RecordRun]
    end: RecordRun


def snapshot_runs(lane: bytes, snapshot: bytes, now_unix_ms: int) -> SnapshotRuns:
    """Return a snapshot as records; the end's header has the number of pieces, if any.

    ``lane``: the lane's id, the key of all of them.
    """
    count = max(len(snapshot) - 1, 0) // PIECE_BYTES_MAX
    pieces: list[RecordRun] = []
    for index in range(count):
        piece = snapshot[index * PIECE_BYTES_MAX : (index + 1) * PIECE_BYTES_MAX]
        header = (PIECE, index.to_bytes(_NUMBER_BYTES, "big"))
        pieces.append(RecordRun(lane, (piece,), encode_headers([header]), now_unix_ms))
    headers = _SNAPSHOT_HEADERS
    if count:
        headers = encode_headers([(SNAPSHOT, count.to_bytes(_NUMBER_BYTES, "big"))])
    end = snapshot[count * PIECE_BYTES_MAX :]
    return SnapshotRuns(pieces, RecordRun(lane, (end,), headers, now_unix_ms))
