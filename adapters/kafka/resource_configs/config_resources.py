"""Resources whose configs can be described and altered, and their authorization."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from adapters.kafka.access.authorization import check_cluster, ordinary_topic_for
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.resource_configs.group_configs import check_group_resource
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, public_text
from gateway.model import check_topic_name
from gateway.topics.manager import Topic

_R = TypeVar("_R")
REPLICATION_THROTTLES: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Broker configs that are accepted and ignored: kafka-reassign-partitions deletes them."""

WHOLE_CLUSTER: Final = ""  # as a broker's name: defaults of all brokers


class ConfigResource(IntEnum):
    """``ConfigResource.Type`` of the Java client."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def check_kind(resource_type: int) -> ConfigResource:
    """Return the kind of a resource: topic, broker or group. Error: ``Refused`` for others."""
    if resource_type not in {
        ConfigResource.TOPIC,
        ConfigResource.BROKER,
        ConfigResource.GROUP,
    }:
        msg = f"Unsupported resource type: {resource_type}"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    return ConfigResource(resource_type)


def check_topic_resource(name: str) -> None:
    """Check the name of a topic. Error: ``InvalidTopicName``."""
    check_topic_name(name)


def check_broker_resource(session: Session, name: str, operation: Operation) -> None:
    """Check that the broker is this one, and that the session may do ``operation`` on the cluster.

    Errors: ``Unauthorized``; ``Refused``, INVALID_REQUEST.
    """
    check_cluster(session, operation)
    node_id = session.node.placement.node_id
    if name == WHOLE_CLUSTER:
        return
    if not name.removeprefix("-").isdecimal():
        msg = f"Broker id must be an integer, but it is: {name[:80]}"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    if int(name[:12]) != node_id:
        msg = (
            f"Unexpected broker id, expected {node_id} or empty string, "
            f"but received {name[:80]}"
        )
        raise Refused(ErrorCode.INVALID_REQUEST, msg)


async def alter_each(
    resources: Sequence[Any],
    session: Session,
    alter: Callable[[Any, Topic], Awaitable[None]],
    alter_group: Callable[[Any], Awaitable[None]],
    result: Callable[..., _R],
    *,
    dry: bool,
) -> list[_R]:
    """Call ``alter`` with each topic of the resources, and ``alter_group`` for each group.

    Return a ``result`` for each. For AlterConfigs and IncrementalAlterConfigs. A broker's configs
    cannot be changed (its throttles are accepted and ignored). A resource that is listed twice is
    refused.
    """
    counts = Counter((asked.resource_type, asked.resource_name) for asked in resources)
    results = []
    for asked in resources:
        code, message = ErrorCode.NONE, None
        try:
            if counts[asked.resource_type, asked.resource_name] > 1:
                msg = "Each resource must appear at most once."
                raise Refused(ErrorCode.INVALID_REQUEST, msg)
            name = asked.resource_name
            kind = check_kind(asked.resource_type)
            if kind is ConfigResource.TOPIC:
                check_topic_resource(name)
                with session.changes("topic.alter_configs", name, dry=dry):
                    topic = ordinary_topic_for(session, name, Operation.ALTER_CONFIGS)
                    await alter(asked, topic)
            elif kind is ConfigResource.GROUP:
                with session.changes("group.alter_configs", name, dry=dry):
                    check_group_resource(session, name, Operation.ALTER_CONFIGS)
                    await alter_group(asked)
            else:
                _check_broker_change(session, name, [config.name for config in asked.configs])
        except GatewayError as error:
            code, message = code_of(error), public_text(error)
        results.append(
            result(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    return results


def _check_broker_change(session: Session, name: str, configs: Sequence[str]) -> None:
    """Refuse changes of a broker's configs, except replication throttles, which have no effect."""
    check_broker_resource(session, name, Operation.ALTER_CONFIGS)
    if not configs or not set(configs) <= REPLICATION_THROTTLES:
        msg = "broker configs are set in the node's config file and hold after a restart"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
