"""The message cache's count of bytes equals its memory."""

import gc
import hashlib
import tracemalloc
from collections.abc import Callable
from typing import Final
from uuid import UUID

import pytest

from adapters.sqs.mapping import plain_header_block
from adapters.sqs.messages.contiguous_json import (
    plain_columns,
    shown_run,
    system_attributes_json,
)
from gateway.model import parse_batch_header
from gateway.partition import Partition
from gateway.queues.cached_batch import CachedBatch
from gateway.records.codec import encode_batch
from gateway.records.record_run import RecordRun
from gateway.topics.manager import Topic
from tests.adapters.sqs.messages.test_received import TOPIC

pytestmark = pytest.mark.heavy

NOW_UNIX_MS: Final = 1_795_520_060_022
BATCHES: Final = 20
RUNS: Final = 20
SPREAD: Final = 0.2  # of what is counted

Make = Callable[[int], CachedBatch]


class Place(Partition):
    """A partition with the attributes that the columns need."""

    __slots__ = ()

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.number = 0


def of_runs(base_offset: int, *, count: int, size: int, is_shown: bool) -> CachedBatch:
    """Return a batch of runs of ``count`` messages, as sends make it."""
    runs: list[RecordRun] = []
    values: list[bytes] = []
    for number in range(RUNS):
        mine = [b"%c" % (65 + number + at) * size for at in range(count)]
        run = RecordRun(None, mine, plain_header_block("bench"), NOW_UNIX_MS + base_offset)
        if is_shown:
            ids = [str(UUID(int=base_offset + at)).encode() for at in range(count)]
            digests = [hashlib.md5(one).hexdigest().encode() for one in mine]  # noqa: S324
            run.shown = shown_run(
                ids, digests, mine, system_attributes_json("bench", run.timestamp_unix_ms)
            )
        runs.append(run)
        values += mine
    batch = encode_batch([(NOW_UNIX_MS, None, value, ()) for value in values])
    header = parse_batch_header(batch)
    kept = CachedBatch(batch, header, base_offset)
    kept.keep_runs(runs, header)
    return kept


def of_data(base_offset: int, *, size: int, is_decoded: bool) -> CachedBatch:
    """Return a batch as it is read from the log."""
    values = [b"%04d" % (at + base_offset % 1_000) + b"x" * size for at in range(100)]
    batch = bytes(encode_batch([(NOW_UNIX_MS, None, value, ()) for value in values]))
    kept = CachedBatch(batch, parse_batch_header(batch), base_offset)
    if is_decoded:
        kept.decode()
    return kept


def shown(make: Make) -> Make:
    """Return what makes the same batches, of which a message was received."""
    place = Place(TOPIC)

    def made(base_offset: int) -> CachedBatch:
        kept = make(base_offset)
        kept.show(place, 0, plain_columns)
        return kept

    return made


@pytest.mark.parametrize("size", [16, 256, 4_000])
@pytest.mark.parametrize("is_shown", [False, True])
@pytest.mark.parametrize("kind", ["sent in batches", "sent alone", "read", "decoded"])
def test_a_batch_takes_what_is_counted(kind: str, is_shown: bool, size: int) -> None:  # noqa: FBT001
    makes: dict[str, Make] = {
        "sent in batches": lambda base: of_runs(base, count=10, size=size, is_shown=True),
        "sent alone": lambda base: of_runs(base, count=1, size=size, is_shown=False),
        "read": lambda base: of_data(base, size=size, is_decoded=False),
        "decoded": lambda base: of_data(base, size=size, is_decoded=True),
    }
    make = shown(makes[kind]) if is_shown else makes[kind]
    make(0)  # what all of them share
    gc.collect()

    tracemalloc.start()
    kept = [make(number * 1_000) for number in range(1, BATCHES)]
    gc.collect()
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    counted_bytes = sum(one.size_bytes for one in kept)
    assert taken_bytes == pytest.approx(counted_bytes, rel=SPREAD)
