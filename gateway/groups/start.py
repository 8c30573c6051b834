"""Start of the consumer groups of a node."""

from contextlib import AsyncExitStack

from gateway.broker import Broker
from gateway.clock import Clock
from gateway.config.settings import GroupsConfig
from gateway.groups.cursors import CursorManager
from gateway.groups.manager import GroupManager
from gateway.topics.manager import TopicManager


async def start_groups(
    broker: Broker,
    topics: TopicManager,
    clock: Clock,
    config: GroupsConfig,
    stack: AsyncExitStack,
) -> tuple[CursorManager, GroupManager]:
    """Return the committed offsets and the groups, loaded; ``stack`` closes them.

    Errors: as ``InternalStream.load``.
    """
    cursors = await CursorManager.open(broker, topics, clock, config)
    stack.callback(cursors.close)
    groups = await GroupManager.open(broker, topics, cursors, clock, config)
    stack.callback(groups.close)
    return cursors, groups
