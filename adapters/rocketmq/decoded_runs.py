"""Decoded batches of the log, for pulls that go through them a few messages at a time.

A pull asks for 32 messages, and a stored batch may have thousands. The result of each read is kept
for the next pulls, of any group, and a message is encoded when it is first pulled.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from adapters.rocketmq.mapping import Placed, message_of
from adapters.rocketmq.remoting.message_codec import encode_message
from gateway.errors import CorruptBatch
from gateway.model import Buffer, Record, parse_batch_header
from gateway.records.codec import decode_batch

KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of all runs, decoded; the oldest is dropped."""
RUNS_PER_PARTITION_MAX: Final = 4
_RECORD_OVERHEAD_BYTES: Final = 400  # of the objects of a decoded record, about


class ShownMessage(NamedTuple):
    """Message as it is pulled: encoded, with its properties for filters."""

    data: bytes
    properties: Mapping[str, str]


class DecodedRun:
    """Records of one read, in order of offset. ``end``: the offset after the last batch."""

    __slots__ = ("_offsets", "_shown", "end", "records", "size_bytes", "start")

    def __init__(self, start: int, end: int, records: Sequence[Record]) -> None:
        self.start = start
        self.end = end
        self.records = records
        self._offsets = [record.offset for record in records]
        self._shown: list[tuple[Placed, ShownMessage] | None] = [None] * len(records)
        self.size_bytes = _RECORD_OVERHEAD_BYTES * len(records) + sum(
            2 * len(record.value or b"") for record in records
        )

    def index_of(self, offset: int) -> int:
        """Return the index of the first record at or after an offset."""
        return bisect_left(self._offsets, offset)

    def shown(self, index: int, placed: Placed) -> ShownMessage:
        """Return a record as a consumer gets it."""
        kept = self._shown[index]
        if kept is not None and kept[0] == placed:
            return kept[1]
        message = message_of(self.records[index], placed)
        shown = ShownMessage(encode_message(message), message.properties)
        self._shown[index] = placed, shown
        return shown


class DecodedRuns:
    """Runs by partition id, within a bound of bytes."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._runs: OrderedDict[int, list[DecodedRun]] = OrderedDict()
        self.kept_bytes = 0

    def find(self, partition_id: int, offset: int) -> DecodedRun | None:
        """Return the run that has an offset, None without one."""
        for run in self._runs.get(partition_id, ()):
            if run.start <= offset < run.end:
                self._runs.move_to_end(partition_id)
                return run
        return None

    def add(self, partition_id: int, run: DecodedRun) -> None:
        """Keep a run; the oldest ones go."""
        runs = self._runs.setdefault(partition_id, [])
        self._runs.move_to_end(partition_id)
        runs.append(run)
        self.kept_bytes += run.size_bytes
        while len(runs) > RUNS_PER_PARTITION_MAX:
            self.kept_bytes -= runs.pop(0).size_bytes
        while self.kept_bytes > self._bytes_max and len(self._runs) > 1:
            _, dropped = self._runs.popitem(last=False)
            self.kept_bytes -= sum(one.size_bytes for one in dropped)
        while self.kept_bytes > self._bytes_max and len(runs) > 1:
            self.kept_bytes -= runs.pop(0).size_bytes


def decode_run(batches: Sequence[Buffer], offset: int) -> DecodedRun:
    """Return the records of batches from an offset on, without those that cannot be decoded.

    ``batches`` are not empty, in order; the first may begin before ``offset``.
    """
    records: list[Record] = []
    for batch in batches:
        with suppress(CorruptBatch):  # a client's own: its consumers go on after it
            records += [one for one in decode_batch(batch) if one.offset >= offset]
    return DecodedRun(offset, parse_batch_header(batches[-1]).last_offset + 1, records)
