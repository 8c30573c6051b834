"""The resources whose configs can be described and altered, and who may do that."""

from enum import IntEnum
from typing import Final

from adapters.kafka.access import check_cluster
from adapters.kafka.errors import ErrorCode, Refused
from adapters.kafka.session import Session
from gateway.auth import Operation
from gateway.model import check_topic_name

WHOLE_CLUSTER: Final = ""  # as a broker's name: the defaults of all brokers


class ConfigResource(IntEnum):
    """``ConfigResource.Type`` of the Java client."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def check_kind(resource_type: int) -> ConfigResource:
    """Return the kind of a resource that has configs here: topics and brokers."""
    if resource_type not in {ConfigResource.TOPIC, ConfigResource.BROKER}:
        msg = f"Unsupported resource type: {resource_type}"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    return ConfigResource(resource_type)


def check_topic_resource(name: str) -> None:
    """Refuse a name that no topic can have. Error: ``InvalidTopicName``."""
    check_topic_name(name)


def check_broker_resource(session: Session, name: str, operation: Operation) -> None:
    """Refuse another broker than this, or a session that may not ``operation`` the cluster."""
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


def refuse_broker_change(session: Session, name: str) -> None:
    """Say that a broker's configs cannot be changed from here. Always raises."""
    check_broker_resource(session, name, Operation.ALTER_CONFIGS)
    msg = "broker configs are set in the node's config file and hold after a restart"
    raise Refused(ErrorCode.INVALID_REQUEST, msg)
