"""Key-index lookup: offset ranges that may hold wanted keys; everything without an index."""

from typing import TypeGuard

from gateway.storage import IndexedStorage, KeySpans, StorageAdapter, WantedKeys


def has_key_spans(storage: StorageAdapter) -> TypeGuard[IndexedStorage]:
    """Say whether a storage (a plug-in's, for example) has a key index."""
    return hasattr(storage, "spans_with_keys")


async def spans_with_keys(
    storage: StorageAdapter, partition_id: int, keys: WantedKeys, start: int, end: int
) -> KeySpans:
    """Return ``IndexedStorage.spans_with_keys``, or the whole range without an index."""
    if has_key_spans(storage):
        return await storage.spans_with_keys(partition_id, keys, start, end)
    return KeySpans([(start, end)], end)
