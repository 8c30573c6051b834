"""Which offset is a key's latest, in memory that is fixed beforehand."""

from hashlib import blake2b
from mmap import mmap
from typing import Final

HASH_BYTES: Final = 16
SLOT_BYTES: Final = HASH_BYTES + 8  # a hash and an offset
LOAD_MAX: Final = 0.75  # beyond it, looking for a free slot takes long
SLOTS_MIN: Final = 64
NOT_THERE: Final = -1

_FREE: Final = bytes(HASH_BYTES)


class OffsetMap:
    """A table with open addressing.

    Keys are held by a hash of 16 octets, as Kafka's ``SkimpyOffsetMap`` does: what is stored
    does not depend on how long keys are, and two keys that share a hash are not to be expected
    (2^-64 for four billion keys).
    """

    __slots__ = ("_hashes", "_offsets", "_slots", "keys", "keys_max")

    def __init__(self, bytes_max: int) -> None:
        self._slots = max(bytes_max // SLOT_BYTES, SLOTS_MIN)
        # Memory that comes as it is used, and goes back at once; a bytearray of 64 MiB would
        # keep everybody waiting for 20 ms while it is zeroed.
        self._hashes = mmap(-1, self._slots * HASH_BYTES)
        self._offsets = memoryview(mmap(-1, self._slots * 8)).cast("q")
        self.keys = 0
        self.keys_max = int(self._slots * LOAD_MAX)

    @property
    def room(self) -> int:
        """Keys that may still be put for the first time."""
        return self.keys_max - self.keys

    def put(self, key: bytes, offset: int) -> None:
        """Note ``offset`` for ``key``; offsets come in order, so the later one holds.

        The caller has seen that there is ``room``.
        """
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


def bytes_for(keys: int) -> int:
    """Return the size of a map that has room for so many keys."""
    return (int(keys / LOAD_MAX) + 1) * SLOT_BYTES
