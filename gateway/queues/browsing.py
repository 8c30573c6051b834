"""Messages of a queue without taking them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway.model import Record
from gateway.queues.lanes import QueueContext, QueueLane
from gateway.queues.message_cache import Unreadable


class Browsed(NamedTuple):
    """A browsed message; ``state`` as in ``Lane.browse``."""

    number: int
    state: str
    record: Record


async def browse(
    context: QueueContext,
    lanes: Sequence[QueueLane],
    count: int,
    from_offsets: Mapping[int, int],
) -> list[Browsed]:
    """Return the first ``count`` messages, partition by partition, lowest offsets first.

    See ``Queue.browse``. Errors: ``StorageUnavailable``.
    """
    found: list[Browsed] = []
    for lane in lanes:
        start = from_offsets.get(lane.number, lane.lane.floor)
        end = lane.partition.stable_end
        places = lane.lane.browse_there(start, end, count - len(found))
        bodies = await context.message_cache.read(
            lane.partition, [place[0] for place in places]
        )
        found += [
            Browsed(lane.number, state, body)
            for (_, state), body in zip(places, bodies, strict=True)
            if not isinstance(body, Unreadable)
        ]
        if len(found) >= count:
            break
    return found


async def get_record(context: QueueContext, lane: QueueLane, offset: int) -> Record | None:
    """Return a message by its offset, whatever its state, or None.

    Errors: ``StorageUnavailable``.
    """
    partition = lane.partition
    if not partition.log_start_offset <= offset < partition.stable_end:
        return None
    body = (await context.message_cache.read(partition, (offset,)))[0]
    return None if isinstance(body, Unreadable) else body
