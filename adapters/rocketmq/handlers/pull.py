"""Pulls: PULL_MESSAGE (11), LITE_PULL_MESSAGE (361).

Bits of the system flag: 1 an offset to commit is there, 2 the pull may wait, 4 the subscription is
in the request; without the last one it is that of the consumer's heartbeat.
"""

from typing import Final

from adapters.rocketmq.consuming.offset_commits import commit_offset
from adapters.rocketmq.consuming.pending_pull import PendingPull, PullLimits
from adapters.rocketmq.names import check_group
from adapters.rocketmq.node import RocketMqNode, Subscriptions, group_name
from adapters.rocketmq.ports import Client
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.fields import Fields, number_of, text_of
from adapters.rocketmq.remoting.wire import ResponseCode
from adapters.rocketmq.request import Request
from adapters.rocketmq.subscriptions import Matches, Subscription, filter_of
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import StorageUnavailable

COMMITS: Final = 0x1
WAITS: Final = 0x2
HAS_SUBSCRIPTION: Final = 0x4


def handle(request: Request) -> None:
    """Answer with messages, now or when some come."""
    fields, node = request.fields, request.node
    group, topic = check_group(text_of(fields, "consumerGroup")), text_of(fields, "topic")
    request.authorize(Operation.READ, ResourceType.GROUP, group)
    request.authorize(Operation.READ, ResourceType.TOPIC, topic)
    partition = node.partition(topic, number_of(fields, "queueId"))
    flags = number_of(fields, "sysFlag")
    matches = _filter(request, group, topic, flags)
    if flags & COMMITS:
        commit_offset(node, group, partition, number_of(fields, "commitOffset"), _no_answer)
    limits = _limits(node, fields, flags)
    PendingPull(request, partition, number_of(fields, "queueOffset"), limits, matches).attempt()


def _limits(node: RocketMqNode, fields: Fields, flags: int) -> PullLimits:
    config = node.config
    bytes_max = number_of(fields, "maxMsgBytes", config.pull_bytes_max)
    wait_ms = number_of(fields, "suspendTimeoutMillis", 0) if flags & WAITS else 0
    return PullLimits(
        min(max(number_of(fields, "maxMsgNums"), 1), config.pull_messages_max),
        min(max(bytes_max, 1), config.pull_bytes_max),
        min(max(wait_ms, 0), config.pull_wait_ms_max),
    )


def _filter(request: Request, group: str, topic: str, flags: int) -> Matches | None:
    fields = request.fields
    if flags & HAS_SUBSCRIPTION:
        return filter_of(fields.get("subscription"), fields.get("expressionType"))
    found = _subscriptions(request.node, group, request.client)
    if found is None:
        raise _missing(f"the consumer's group info not exist: {group}")
    subscription = found.get(topic)
    if subscription is None:
        raise _missing(f"the consumer's subscription not exist: {group}")
    if subscription.version < number_of(fields, "subVersion", 0):
        remark = "the consumer's subscription not latest"
        raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
    return filter_of(subscription.expression, subscription.expression_type)


def _subscriptions(node: RocketMqNode, group: str, client: Client) -> Subscriptions | None:
    """Return what a client subscribes to, else what any other of the group does."""
    members = node.consumers.members(group_name(group))
    own = [member.subscription for member in members if member.holder is client]
    if own:
        merged: dict[str, Subscription] = {}
        for one in own:
            merged |= one
        return merged
    return members[0].subscription if members else None


def _missing(remark: str) -> Refused:
    return Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)


def _no_answer(_error: StorageUnavailable | None) -> None:
    """Let the client find out with its next query: the pull itself is answered."""
