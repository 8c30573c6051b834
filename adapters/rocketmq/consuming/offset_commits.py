"""Committed offsets of groups: those that Kafka's consumers of the same group have, too."""

from adapters.rocketmq.node import RocketMqNode, group_name
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.wire import ResponseCode
from gateway.groups.cursors import Commit
from gateway.groups.model import NO_GENERATION
from gateway.partition import Partition
from gateway.storage import OnDone


def commit_offset(
    node: RocketMqNode, group: str, partition: Partition, offset: int, on_done: OnDone
) -> None:
    """Store a group's next offset in a queue.

    Errors: ``Refused`` for a negative one; those of a group with members of Kafka's protocols.
    """
    if offset < 0:
        raise Refused(ResponseCode.INVALID_PARAMETER, f"offset {offset} is negative")
    name = group_name(group)
    node.kernel.groups.check_commit(name, "", None, NO_GENERATION)
    commit = Commit(partition.topic.uuid, partition.number, offset)
    node.kernel.cursors.commit(name, [commit], on_done)
