"""Scan of the headers of all batches in log objects, some objects at a time.

Each partition's batches come in the order of their offsets, in whichever logs they are: sequences
of different logs say nothing about each other.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Final

from gateway.errors import StorageUnavailable
from gateway.storage import StoredHeader
from storage_adapters.formats.damage import Damaged
from storage_adapters.s3.bucket import Bucket
from storage_adapters.s3.objects import headers_of
from storage_adapters.s3.state import KIND_LOG, Catalog, StoredObject, object_key

SCANS_AT_ONCE: Final = 8
_NEVER: Final = 1 << 63  # an offset that no batch has


def scan(
    catalog: Catalog, bucket: Bucket, prefix: str, from_sequence: int
) -> Iterator[StoredHeader]:
    """Yield the headers from a sequence on. Errors: ``StorageUnavailable``.

    With several logs, from the offset on behind which a partition has log objects only, since
    another node's log may have what no snapshot has: the last appends of a dead node.
    """
    logs = [stored for stored in catalog.objects.values() if stored.kind == KIND_LOG]
    if all(stored.log == catalog.log for stored in logs):
        wanted = [stored for stored in logs if stored.next_sequence > from_sequence]
        yield from _read_all(bucket, prefix, in_order(catalog, wanted), from_sequence)
        return
    starts = _log_offsets(catalog)
    for found in _read_all(bucket, prefix, in_order(catalog, logs), 0):
        targets = [
            one
            for one in found.targets
            if one.base_offset >= starts.get(one.partition_id, _NEVER)
        ]
        if targets:
            yield found._replace(targets=tuple(targets))


def _log_offsets(catalog: Catalog) -> dict[int, int]:
    """Return for each partition the offset behind which it has log objects only."""
    starts: dict[int, int] = {}
    for state in catalog.partitions.values():
        for extent in reversed(state.extents):
            if catalog.objects[extent.number].kind != KIND_LOG:
                break
            starts[state.partition_id] = extent.first
    return starts


def _read_all(
    bucket: Bucket, prefix: str, wanted: Iterable[StoredObject], from_sequence: int
) -> Iterator[StoredHeader]:
    read = partial(_headers, bucket, prefix, from_sequence)
    with ThreadPoolExecutor(SCANS_AT_ONCE, "headgate-scan") as executor:
        ahead: deque[Future[list[StoredHeader]]] = deque()
        for stored in wanted:
            ahead.append(executor.submit(read, stored))
            if len(ahead) == SCANS_AT_ONCE:
                yield from ahead.popleft().result()
        while ahead:
            yield from ahead.popleft().result()


def in_order(catalog: Catalog, objects: Iterable[StoredObject]) -> list[StoredObject]:
    """Sort log objects by sequence within a log, and by offset within each partition."""
    left = {stored.number: stored for stored in sorted(objects, key=_sequences)}
    if len({stored.log for stored in left.values()}) <= 1:
        return list(left.values())
    behind, ahead = _edges(catalog, left)
    free = [(stored.first_sequence, number) for number, stored in left.items()]
    heap = [one for one in free if not ahead[one[1]]]
    heapq.heapify(heap)
    found: list[StoredObject] = []
    while heap:
        number = heapq.heappop(heap)[1]
        found.append(left.pop(number))
        for later in behind[number]:
            ahead[later] -= 1
            if not ahead[later]:
                heapq.heappush(heap, (left[later].first_sequence, later))
    return [*found, *left.values()]  # none is left: commits were made in one such order


def _edges(
    catalog: Catalog, objects: dict[int, StoredObject]
) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Return the objects right behind each, and how many are right ahead of it."""
    behind: dict[int, list[int]] = defaultdict(list)
    ahead: dict[int, int] = defaultdict(int)
    chains: dict[int, list[int]] = defaultdict(list)
    for stored in objects.values():
        chains[stored.log].append(stored.number)
    partitions = [
        [extent.number for extent in state.extents if extent.number in objects]
        for state in catalog.partitions.values()
    ]
    for chain in [*chains.values(), *partitions]:
        for one, other in pairwise(chain):
            behind[one].append(other)
            ahead[other] += 1
    return behind, ahead


def _sequences(stored: StoredObject) -> tuple[int, int]:
    return stored.first_sequence, stored.next_sequence


def _headers(
    bucket: Bucket, prefix: str, from_sequence: int, stored: StoredObject
) -> list[StoredHeader]:
    key = object_key(prefix, stored.number, stored.epoch)
    data = bucket.get(key, 0, stored.size_bytes)
    try:
        return headers_of(data, from_sequence)
    except Damaged as error:
        raise StorageUnavailable(f"object {key} is damaged: {error}") from error
