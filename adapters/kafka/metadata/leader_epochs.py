"""Leader epochs, by which clients notice a log that was cut back (KIP-101, KIP-320)."""

from typing import Final

from gateway.broker import Broker
from gateway.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from gateway.partition import Partition

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


def check_current(partition: Partition, current_leader_epoch: int) -> None:
    """Refuse a client whose metadata is older (``FencedLeaderEpoch``) or newer than ours.

    -1 stands for a client that does not say. Errors: also ``UnknownLeaderEpoch``.
    """
    if current_leader_epoch in {NO_EPOCH, partition.leader_epoch}:
        return
    msg = f"the leader epoch is {partition.leader_epoch}, not {current_leader_epoch}"
    if current_leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(msg)
    raise UnknownLeaderEpoch(msg)


def epoch_at(broker: Broker, partition: Partition, offset: int) -> int:
    """Return the leader epoch in which the record at ``offset`` was written.

    At the log's end it is the present epoch, in which the next record will be. Found by
    halving: the end offsets of epochs never go down.
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
    """Return (epoch, end offset) of the largest epoch that is not above ``leader_epoch``.

    An epoch older than what the log still holds ends where the log starts; one that has not
    come yet has no end: (-1, -1).
    """
    if not 0 <= leader_epoch <= partition.leader_epoch:
        return NO_EPOCH, NO_OFFSET
    epoch, end = broker.end_offset_for_epoch(partition, leader_epoch)
    if epoch == NO_EPOCH:
        return leader_epoch, partition.log_start_offset
    return epoch, max(end, partition.log_start_offset)
