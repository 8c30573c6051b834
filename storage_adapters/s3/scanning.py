"""Scan of the headers of all batches in log objects, some objects at a time."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

from gateway.errors import StorageUnavailable
from gateway.storage import StoredHeader
from storage_adapters.formats.damage import Damaged
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.objects import headers_of
from storage_adapters.s3.state import KIND_LOG, Catalog, StoredObject, object_key

SCANS_AT_ONCE: Final = 8


def scan(
    catalog: Catalog, bucket: Bucket, prefix: str, from_sequence: int
) -> Iterator[StoredHeader]:
    """Yield the headers from a sequence on. Errors: ``StorageUnavailable``."""
    wanted = sorted(
        (stored.first_sequence, stored)
        for stored in catalog.objects.values()
        if stored.kind == KIND_LOG and stored.next_sequence > from_sequence
    )
    read = partial(_headers, bucket, prefix, from_sequence)
    with ThreadPoolExecutor(SCANS_AT_ONCE, "headgate-scan") as executor:
        ahead: deque[Future[list[StoredHeader]]] = deque()
        for _, stored in wanted:
            ahead.append(executor.submit(read, stored))
            if len(ahead) == SCANS_AT_ONCE:
                yield from ahead.popleft().result()
        while ahead:
            yield from ahead.popleft().result()


def _headers(
    bucket: Bucket, prefix: str, from_sequence: int, stored: StoredObject
) -> list[StoredHeader]:
    key = object_key(prefix, stored.number, stored.epoch)
    data = bucket.get(key, 0, stored.size_bytes)
    try:
        return headers_of(data, from_sequence)
    except Damaged as error:
        raise StorageUnavailable(f"object {key} is damaged: {error}") from error
