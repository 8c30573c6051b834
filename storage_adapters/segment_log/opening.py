"""Opening of a data directory: check, repair, clean up, and begin a new segment."""

import sys
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

from gateway.clock import Clock
from gateway.errors import StorageUnavailable
from storage_adapters.formats.segment import encode_segment_header
from storage_adapters.segment_log.files import Files
from storage_adapters.segment_log.lockfile import DataLock
from storage_adapters.segment_log.recovery import Recovered, recover
from storage_adapters.segment_log.segment_files import make_first
from storage_adapters.segment_log.segments import WAL_DIRECTORY, Segment, segment_path
from storage_adapters.segment_log.settled_files import SettledState, load_settled


class Opened(NamedTuple):
    """Result of opening: the data found, and the new active segment."""

    recovered: Recovered
    settled: SettledState
    first: Segment
    data_uuid: UUID


def open_data(
    data_dir: Path, lock: DataLock, *, files: Files, segment_bytes: int, clock: Clock
) -> Opened:
    """Lock, check and repair a data directory, and begin this start's first segment.

    In a thread. Errors: ``StorageUnavailable``, ``OSError``; the lock is released then.
    """
    if sys.byteorder != "little":
        raise StorageUnavailable("segment_log needs a little-endian machine")
    directory = data_dir / WAL_DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    lock.acquire()
    try:
        settled = load_settled(data_dir)
        recovered = recover(data_dir, files, settled.manifest)
        data_uuid = recovered.data_uuid or uuid4()
        header = encode_segment_header(
            data_uuid=data_uuid,
            number=recovered.next_number,
            previous=recovered.previous_number,
            first_sequence=recovered.next_sequence,
            incarnation=recovered.incarnation + 1,
            created_unix_ms=clock.unix_ms(),
        )
        path = segment_path(data_dir, recovered.next_number)
        first = make_first(files, path, header, segment_bytes)
        for leftover in (*recovered.leftovers, *settled.leftovers):
            files.unlink(leftover)
        files.sync_directory(directory)
    except BaseException:
        lock.release()
        raise
    return Opened(recovered, settled, first, data_uuid)
