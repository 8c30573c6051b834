"""Moves of delayed messages to the shard of their partition."""

from collections.abc import Awaitable, Callable, Sequence

import structlog

from features.delay.entries import parse_waiting
from features.delay.message_locations import MessageLocation
from gateway.delays.due_batch import entry_writes, removal_writes
from gateway.delays.stream import DelayStream, HomeOf
from gateway.model import parse_batch_header
from gateway.partition import Partition, Write

Live = list[tuple[int, MessageLocation, bytes]]

log = structlog.get_logger()


async def move_home(
    stream: DelayStream,
    home_of: HomeOf,
    partition_of: Callable[[int], Partition],
    append: Callable[[Sequence[Write]], Awaitable[None]],
) -> None:
    """Move messages that are in another shard than their own; the stream is loaded.

    Those of one batch are moved in one append, with their removal. The states in memory are not
    changed: the caller loads them again. Errors: those of ``append``.
    """
    source = stream.partition
    end, offset = source.high_watermark, source.log_start_offset
    moved = 0
    while offset < end:
        for batch in await stream.read(offset):
            by_home: dict[int, Live] = {}
            for one in stream.live_in(batch):
                _, _, topic_uuid, number, *_ = parse_waiting(one[2])
                home = home_of(topic_uuid, number)
                if home is not None and home != source.number:
                    by_home.setdefault(home, []).append(one)
            if by_home:
                await append(_writes(stream, by_home, partition_of))
                moved += sum(map(len, by_home.values()))
            offset = parse_batch_header(batch).last_offset + 1
    log.info("delayed messages moved to their shards", partition=repr(source), count=moved)


def _writes(
    stream: DelayStream, by_home: dict[int, Live], partition_of: Callable[[int], Partition]
) -> list[Write]:
    now_unix_ms = stream.clock.unix_ms()
    writes: list[Write] = []
    for home, live in by_home.items():
        values = [value for _, _, value in live] + stream.gone_of(live)
        writes += entry_writes(partition_of(home), values, now_unix_ms)
    numbers = [number for live in by_home.values() for number, _, _ in live]
    runs = stream.state.runs
    alone = [one for one in numbers if runs.get(one) is None]
    whole = [one for one in numbers if runs.get(one) is not None]
    return writes + removal_writes(stream.partition, alone, now_unix_ms, whole)
