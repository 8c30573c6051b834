"""Queues of share groups, and the removal of groups and of their positions."""

from functools import partial
from typing import Final

from gateway.errors import GroupNotEmpty, GroupNotFound, TopicNotFound
from gateway.futures import await_done
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.manager import GroupManager
from gateway.groups.model import GroupName
from gateway.queues.manager import QueueManager
from gateway.queues.queue import Queue
from gateway.topics.manager import Topic

SHARE_ATTRIBUTE: Final = "kafka.share"
"""Attribute of the queues that share groups have made."""


def share_queues(queues: QueueManager, namespace: str) -> dict[str, list[Queue]]:
    """Return the queues that share groups have made, by group, sorted by topic."""
    found: dict[str, list[Queue]] = {}
    for queue in queues.queues(namespace):
        if SHARE_ATTRIBUTE in queue.attributes:
            found.setdefault(queue.group, []).append(queue)
    return found


def queues_of(queues: QueueManager, name: GroupName) -> list[Queue]:
    """Return the queues that a group has made, sorted by topic."""
    return share_queues(queues, name.namespace).get(name.name, [])


def queue_on(queues: QueueManager, name: GroupName, topic: Topic) -> Queue:
    """Return the queue of a group on a topic. Error: ``TopicNotFound`` without one."""
    queue = queues.find(topic.name, name.name)
    if queue is None or SHARE_ATTRIBUTE not in queue.attributes:
        msg = f"share group {name.name[:80]!r} does not read {topic.name.name}"
        raise TopicNotFound(msg)
    return queue


def find_share_group(groups: GroupManager, name: GroupName) -> ConsumerGroup | None:
    """Return a share group. Errors: as ``GroupManager``."""
    groups.has(name)
    return groups.share_groups.by_name.get(name)


def check_idle(groups: GroupManager, name: GroupName) -> ConsumerGroup:
    """Return a share group without members. Errors: ``GroupNotFound``, ``GroupNotEmpty``."""
    group = find_share_group(groups, name)
    if group is None:
        msg = f"Group {name.name[:80]} is not a share group."
        raise GroupNotFound(msg)
    if not group.is_idle:
        msg = f"Share group {name.name[:80]} is not empty."
        raise GroupNotEmpty(msg)
    return group


async def delete_share_group(
    groups: GroupManager, queues: QueueManager, name: GroupName
) -> None:
    """Delete a group without members, with its queues; return once that is durable.

    Errors: those of ``check_idle`` and of ``QueueManager.delete``.
    """
    check_idle(groups, name)
    for queue in queues_of(queues, name):
        await queues.delete(queue)
    check_idle(groups, name)
    await await_done(partial(groups.delete, name))


async def forget_share_topic(
    groups: GroupManager, queues: QueueManager, name: GroupName, topic: Topic
) -> None:
    """Forget a group's positions in a topic. Errors: ``TopicNotFound``; as ``check_idle``."""
    check_idle(groups, name)
    await queues.delete(queue_on(queues, name, topic))
