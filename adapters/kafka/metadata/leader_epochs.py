"""Leader epochs, by which clients detect log truncation (KIP-101, KIP-320)."""

from typing import Final

from gateway.broker import Broker
from gateway.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from gateway.partition import Partition

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


def check_current(partition: Partition, current_leader_epoch: int) -> None:
    """Check a client's leader epoch against the current one; -1 is not checked.

    Errors: ``FencedLeaderEpoch`` for an older one, ``UnknownLeaderEpoch`` for a newer one.
    """
    if current_leader_epoch in {NO_EPOCH, partition.leader_epoch}:
        return
    msg = f"the leader epoch is {partition.leader_epoch}, not {current_leader_epoch}"
    if current_leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(msg)
    raise UnknownLeaderEpoch(msg)


def epoch_at(broker: Broker, partition: Partition, offset: int) -> int:
    """Return the leader epoch in which the record at ``offset`` was written.

    At the log's end it is the current epoch, in which the next record will be written. Binary
    search: the end offsets of epochs never decrease.
    """
    low, high = 0, partition.leader_epoch
    while low < high:
        middle = (low + high) // 2
        if broker.end_offset_for_epoch(partition, middle)[1] > offset:
            high = middle
        else:
            low = middle + 1
    return low


def end_offset(broker: Broker, partition: Partition, leader_epoch: int) -> tuple[int, int]:
    """Return (epoch, end offset) of the largest epoch up to ``leader_epoch``.

    An epoch older than the log ends at the log's start; a future epoch has no end: (-1, -1).
    """
    if not 0 <= leader_epoch <= partition.leader_epoch:
        return NO_EPOCH, NO_OFFSET
    epoch, end = broker.end_offset_for_epoch(partition, leader_epoch)
    if epoch == NO_EPOCH:
        return leader_epoch, partition.log_start_offset
    return epoch, max(end, partition.log_start_offset)
