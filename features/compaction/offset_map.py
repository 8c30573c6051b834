"""Map from a key to its latest offset, in memory of a fixed size."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from mmap import mmap
from typing import Final

HASH_BYTES: Final = 16
SLOT_BYTES: Final = HASH_BYTES + 8  # a hash and an offset
LOAD_MAX: Final = 0.75  # beyond it, looking for a free slot takes long
SLOTS_MIN: Final = 64
NOT_THERE: Final = -1
DICT_SHARE: Final = 2  # of the memory, one part in so many is a dict's at most
DICT_KEY_BYTES: Final = 160  # of a key in a dict, beside its bytes

_FREE: Final = bytes(HASH_BYTES)


class OffsetMap:
    """A dict while it is small; a table of hashes, which takes a fifth of the memory, above.

    In a dict a record takes 0.1 us, in the table 1.5. There keys are held by a hash of 16
    bytes, as Kafka's ``SkimpyOffsetMap`` does: what is stored does not depend on how long keys
    are, and two keys that share a hash are not to be expected (2^-64 for four billion keys).
    """

    __slots__ = ("_dict", "_dict_bytes_left", "_table", "_table_bytes", "keys_max")

    def __init__(self, bytes_max: int) -> None:
        slots = max(bytes_max // SLOT_BYTES, SLOTS_MIN)
        self.keys_max = int(slots * LOAD_MAX)
        self._table_bytes = bytes_max
        self._table: _Table | None = None
        self._dict: dict[bytes, int] = {}
        self._dict_bytes_left = bytes_max // DICT_SHARE

    @property
    def keys(self) -> int:
        """Number of keys."""
        return len(self._dict) if self._table is None else self._table.keys

    @property
    def room(self) -> int:
        """Keys that may still be put for the first time."""
        return self.keys_max - self.keys

    def put_all(self, keys: Sequence[bytes], offsets: Sequence[int]) -> None:
        """Note an offset for each key; offsets come in order, so the latest holds.

        The caller has seen that there is ``room``.
        """
        if self._table is None:
            latest = self._dict
            known = len(latest)
            latest.update(zip(keys, offsets, strict=True))
            assert len(latest) <= self.keys_max, "put without room"
            new = len(latest) - known
            if new:  # Those that were there take their bytes too; nearly so is enough.
                mean_bytes = sum(map(len, keys)) // len(keys)
                self._dict_bytes_left -= new * (mean_bytes + DICT_KEY_BYTES)
                if self._dict_bytes_left < 0:
                    self._spill()
            return
        for key, offset in zip(keys, offsets, strict=True):
            self._table.put(key, offset)

    def _spill(self) -> None:
        """Go on with a table."""
        table = self._table = _Table(self._table_bytes, self.keys_max)
        while self._dict:
            table.put(*self._dict.popitem())

    def get_all(self, keys: Sequence[bytes]) -> list[int]:
        """Return for each key the offset that was put last, ``NOT_THERE`` when none was."""
        if self._table is None:
            latest_of = self._dict.get
            return [latest_of(key, NOT_THERE) for key in keys]
        return [self._table.get(key) for key in keys]

    def offsets(self) -> Iterator[int]:
        """Yield the latest offset of every key, in any order."""
        return iter(self._dict.values()) if self._table is None else self._table.offsets()


class _Table:
    """Open addressing. Its memory comes as it is used."""

    __slots__ = ("_hashes", "_offsets", "_slots", "keys", "keys_max")

    def __init__(self, bytes_max: int, keys_max: int) -> None:
        self._slots = max(bytes_max // SLOT_BYTES, SLOTS_MIN)
        # Memory that comes as it is used, and goes back at once; a bytearray of 64 MiB would
        # keep everybody waiting for 20 ms while it is zeroed.
        self._hashes = mmap(-1, self._slots * HASH_BYTES)
        self._offsets = memoryview(mmap(-1, self._slots * 8)).cast("q")
        self.keys = 0
        self.keys_max = keys_max

    def put(self, key: bytes, offset: int) -> None:
        """Note ``offset`` for ``key``."""
        digest = blake2b(key, digest_size=HASH_BYTES).digest()
        slot = int.from_bytes(digest[:8], "big") % self._slots
        hashes = self._hashes
        while True:
            at = slot * HASH_BYTES
            found = hashes[at : at + HASH_BYTES]
            if found == digest:
                break
            if found == _FREE:
                assert self.keys < self.keys_max, "put without room"
                hashes[at : at + HASH_BYTES] = digest
                self.keys += 1
                break
            slot = (slot + 1) % self._slots
        self._offsets[slot] = offset

    def get(self, key: bytes) -> int:
        """Return the offset that was put last for ``key``, ``NOT_THERE`` when none was."""
        digest = blake2b(key, digest_size=HASH_BYTES).digest()
        slot = int.from_bytes(digest[:8], "big") % self._slots
        hashes = self._hashes
        while True:
            at = slot * HASH_BYTES
            found = hashes[at : at + HASH_BYTES]
            if found == digest:
                return self._offsets[slot]
            if found == _FREE:
                return NOT_THERE
            slot = (slot + 1) % self._slots

    def offsets(self) -> Iterator[int]:
        """Yield the offsets of all keys."""
        hashes = self._hashes
        for slot in range(self._slots):
            at = slot * HASH_BYTES
            if hashes[at : at + HASH_BYTES] != _FREE:
                yield self._offsets[slot]


def bytes_for(keys: int) -> int:
    """Return the size of a map that has room for so many keys."""
    return (int(keys / LOAD_MAX) + 1) * SLOT_BYTES
