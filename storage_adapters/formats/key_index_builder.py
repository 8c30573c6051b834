"""Builder of a segment's key index, in bounded memory.

Keys are gathered in runs of a few thousand, sorted and encoded at once: one large sort would
keep the interpreter's lock, and so the event loop, for a second at a million keys. The runs of
a partition are merged after its last batch. The memory used is about as large as the
index itself, and has a bound: rows beyond it are not listed (``rows_covered``).
"""

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from crc32c import crc32c

from gateway.errors import RequestError
from gateway.model import Buffer, encode_uvarint
from storage_adapters.formats.key_index import (
    BLOCK_KEYS,
    KEY_BYTES_MAX,
    KEY_INDEX_HEADER_BYTES,
    KEY_TABLE_ROW_BYTES,
    POSITION_BYTES,
    KeyIndexHeader,
    KeyTableRow,
    decode_entries,
    decode_postings,
    encode_index_header,
    encode_table_row,
)

RUN_KEYS_MAX: Final = 16_384  # sorting them takes 6 ms
RUN_BYTES_MAX: Final = 8_388_608
INDEX_BYTES_MAX: Final = 134_217_728

KeysOf = Callable[[Buffer], Iterable[bytes]]
"""Returns the keys of a batch, in any order; a ``RequestError`` when it cannot be decoded."""

_SMALL: Final = tuple(encode_uvarint(number) for number in range(4_096))
_ROW_BYTES: Final = 8
_KEY_OVERHEAD_BYTES: Final = 100  # what a key takes in memory beside its bytes


def build_key_index(
    batches: Iterable[tuple[int, int, Buffer]],
    keys_of: KeysOf,
    *,
    segment_number: int,
    segment_seed: int,
    index_bytes_max: int = INDEX_BYTES_MAX,
) -> bytes:
    """Build the index of a segment's batches, given as (partition id, row, batch).

    Partition ids ascend, and so do the rows within one. ``keys_of`` decodes a batch; one that
    it refuses is listed under no key and counted.
    """
    builder = KeyIndexBuilder(index_bytes_max=index_bytes_max)
    for partition_id, row, batch in batches:
        try:
            keys = keys_of(batch)
        except RequestError:
            builder.add_undecodable(partition_id, row)
        else:
            builder.add(partition_id, row, keys)
    return builder.encode(segment_number=segment_number, segment_seed=segment_seed)


class KeyIndexBuilder:
    """Builder of an index from (partition id, row, keys) in order."""

    def __init__(
        self,
        *,
        run_keys_max: int = RUN_KEYS_MAX,
        run_bytes_max: int = RUN_BYTES_MAX,
        index_bytes_max: int = INDEX_BYTES_MAX,
    ) -> None:
        self._run_keys_max = run_keys_max
        self._run_bytes_max = run_bytes_max
        self._index_bytes_max = index_bytes_max
        self._areas: list[bytes] = []
        self._table: list[KeyTableRow] = []
        self._kept_bytes = 0
        self._partition_id = -1
        self._begin(-1)

    def _begin(self, partition_id: int) -> None:
        self._partition_id = partition_id
        self._last_row = -1
        self._rows_covered = 0
        self._undecodable_count = 0
        self._runs: list[bytes] = []
        self._postings: dict[bytes, int | list[int]] = {}
        self._run_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the bound is reached; batches added from now on are not listed."""
        return self._kept_bytes >= self._index_bytes_max

    def add(self, partition_id: int, row: int, keys: Iterable[bytes]) -> None:
        """List a batch under its keys. Errors: ``ValueError`` when it is out of order."""
        self._advance(partition_id, row)
        if self.is_full:
            return
        postings = self._postings
        for key in set(keys):
            listed_key = key[:KEY_BYTES_MAX]
            known = postings.get(listed_key)
            if known is None:
                postings[listed_key] = row
                self._run_bytes += len(listed_key) + _KEY_OVERHEAD_BYTES
            elif isinstance(known, list):
                if known[-1] != row:  # Two long keys of one batch may be listed as one.
                    known.append(row)
                    self._run_bytes += _ROW_BYTES
            elif known != row:
                postings[listed_key] = [known, row]
                self._run_bytes += _KEY_OVERHEAD_BYTES
        self._rows_covered = row + 1
        if len(postings) >= self._run_keys_max or self._run_bytes >= self._run_bytes_max:
            self._end_run()

    def add_undecodable(self, partition_id: int, row: int) -> None:
        """Count a batch whose keys cannot be decoded. Errors: as ``add``."""
        self._advance(partition_id, row)
        self._undecodable_count += 1
        if not self.is_full:
            self._rows_covered = row + 1

    def encode(self, *, segment_number: int, segment_seed: int) -> bytes:
        """Return the whole index. The builder is used up."""
        self._end_partition()
        table_end = KEY_INDEX_HEADER_BYTES + len(self._table) * KEY_TABLE_ROW_BYTES
        table = b"".join(
            encode_table_row(row._replace(area_at=row.area_at + table_end))
            for row in self._table
        )
        body_crc = 0
        for area in self._areas:
            body_crc = crc32c(area, body_crc)
        header = KeyIndexHeader(
            len(self._table),
            segment_number,
            segment_seed,
            crc32c(table),
            body_crc,
            sum(row.undecodable_count for row in self._table),
            sum(map(len, self._areas)),
        )
        return b"".join([encode_index_header(header), table, *self._areas])

    def _advance(self, partition_id: int, row: int) -> None:
        if partition_id != self._partition_id:
            if partition_id < self._partition_id:
                msg = f"partition {partition_id} after {self._partition_id}"
                raise ValueError(msg)
            self._end_partition()
            self._begin(partition_id)
        elif row <= self._last_row:
            msg = f"row {row} of partition {partition_id} after {self._last_row}"
            raise ValueError(msg)
        self._last_row = row

    def _end_run(self) -> None:
        postings = self._postings
        area = _Area()
        for key in sorted(postings):
            rows = postings[key]
            area.add(key, _small(rows) if isinstance(rows, int) else _encode_postings(rows))
        encoded = area.encode()
        self._runs.append(encoded)
        self._kept_bytes += len(encoded)
        self._postings, self._run_bytes = {}, 0

    def _end_partition(self) -> None:
        if self._partition_id < 0:
            return
        if self._postings:
            self._end_run()
        area, key_count = b"", 0
        if self._runs:
            self._kept_bytes -= sum(map(len, self._runs))
            area, key_count = _merged(self._runs)
            self._kept_bytes += len(area)
        self._table.append(
            KeyTableRow(
                self._partition_id,
                key_count,
                sum(map(len, self._areas[-1:]))
                + (self._table[-1].area_at if self._table else 0),
                len(area),
                -(-key_count // BLOCK_KEYS),
                self._rows_covered,
                self._undecodable_count,
            )
        )
        self._areas.append(area)
        self._partition_id = -1


class _Area:
    """Encoder of ordered keys into blocks."""

    def __init__(self) -> None:
        self._positions = array("I")
        self._body = bytearray()
        self._previous = b""
        self.key_count = 0

    def add(self, key: bytes, postings: bytes) -> None:
        """Add the next key."""
        body = self._body
        if self.key_count % BLOCK_KEYS:
            shared = _shared_bytes(self._previous, key)
        else:
            self._positions.append(len(body))
            shared = 0
        size = len(postings)
        body += _SMALL[shared]
        body += _SMALL[len(key) - shared]
        body += key[shared:]
        body += _SMALL[size] if size < len(_SMALL) else encode_uvarint(size)
        body += postings
        self._previous = key
        self.key_count += 1

    def encode(self) -> bytes:
        """Return the positions of the blocks, then the blocks."""
        first_at = len(self._positions) * POSITION_BYTES
        positions = array("I", [first_at + position for position in self._positions])
        return positions.tobytes() + self._body


def _merged(runs: list[bytes]) -> tuple[bytes, int]:
    """Return the area of sorted runs, whose rows ascend from run to run, and its key count."""
    area = _Area()
    entries = heapq.merge(*map(_entries_of, runs), key=itemgetter(0))
    for key, found in groupby(entries, key=itemgetter(0)):
        lists = [postings for _, postings in found]
        if len(lists) == 1:
            area.add(key, lists[0])
        else:
            rows = [row for postings in lists for row in decode_postings(postings)]
            area.add(key, _encode_postings(rows))
    return area.encode(), area.key_count


def _entries_of(run: bytes) -> Iterator[tuple[bytes, bytes]]:
    first_at = int.from_bytes(run[:POSITION_BYTES], "little")
    # A block's first key shares nothing, so the blocks read as one.
    return decode_entries(run, first_at, len(run))


def _encode_postings(rows: list[int]) -> bytes:
    parts, last = [], 0
    for row in rows:
        parts.append(_small(row - last))
        last = row
    return b"".join(parts)


def _small(value: int) -> bytes:
    return _SMALL[value] if value < len(_SMALL) else encode_uvarint(value)


def _shared_bytes(first: bytes, second: bytes) -> int:
    """Return the length of the common prefix."""
    size = min(len(first), len(second))
    if first[:size] == second[:size]:
        return size
    both = int.from_bytes(first[:size], "big") ^ int.from_bytes(second[:size], "big")
    return size - (both.bit_length() + 7) // 8
