"""Removal of settled messages from the message cache, batch by batch, once a second.

Only whole batches are checked: a batch that is handed out to its end and has no open message is
not needed any more. Settling a message costs nothing here.
"""

import asyncio
from typing import Final

from gateway.queues.lanes import QueueContext, QueueLane
from gateway.retention_holds import HolderKind

BATCHES_PER_TURN: Final = 64  # looked at, or dropped, before others have their turn


async def drop_settled(context: QueueContext, lane: QueueLane) -> None:
    """Drop the kept batches of a lane's partition that no queue group needs.

    With several groups on a topic that is what lies before the first message that any of them
    needs; with one it may lie behind a message that is in flight for long.
    """
    partition_id = lane.partition.partition_id
    kept = context.message_cache.handed_out(partition_id, lane.lane.next_offset)
    if not kept:
        return
    groups = [
        hold
        for hold in context.broker.retention_holds(partition_id)
        if hold.kind is HolderKind.QUEUE
    ]
    floor = min((hold.offset for hold in groups), default=lane.lane.floor)
    is_alone = len(groups) <= 1
    for count, (base_offset, last_offset) in enumerate(kept, 1):
        if last_offset < floor or (is_alone and lane.lane.is_done(base_offset, last_offset)):
            context.message_cache.drop(partition_id, base_offset)
        if count % BATCHES_PER_TURN == 0:
            await asyncio.sleep(0)
