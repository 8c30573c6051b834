"""Key-index lookup: offset ranges that may hold wanted keys; everything without an index."""

from typing import TypeGuard

from gateway.storage import IndexedStorage, KeySpans, StorageAdapter, WantedKeys


def has_key_spans(storage: StorageAdapter) -> TypeGuard[IndexedStorage]:
    """Say whether a storage, which may be a plug-in's, knows where keys are."""
    return hasattr(storage, "spans_with_keys")


async def spans_with_keys(
    storage: StorageAdapter, partition_id: int, keys: WantedKeys, start: int, end: int
) -> KeySpans:
    """Return what ``IndexedStorage.spans_with_keys`` does; all, where nothing is known."""
    if has_key_spans(storage):
        return await storage.spans_with_keys(partition_id, keys, start, end)
    return KeySpans([(start, end)], end)
