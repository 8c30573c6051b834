"""Routes of topics (105), cluster information (106), lists of topics (206, 224, 304).

A topic's route names this broker, and the foreign brokers that have registered the topic.
"""

from adapters.rocketmq.names import DEFAULT_TOPIC, SYSTEM_TOPICS, is_visible
from adapters.rocketmq.nameserver.kv_configs import KV_KIND, ORDER_NAMESPACE
from adapters.rocketmq.nameserver.routes import (
    INHERITED,
    READABLE,
    WRITABLE,
    QueueEntry,
    encode_cluster,
    encode_route,
    encode_topics,
)
from adapters.rocketmq.node import RocketMqNode
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.fields import flag_of, text_of
from adapters.rocketmq.remoting.wire import STANDARD_JSON_FROM, ResponseCode
from adapters.rocketmq.request import Request
from gateway.auth.ports import CLUSTER, Operation, ResourceType


def topic_route(request: Request) -> None:
    """Answer with a topic's route; TOPIC_NOT_EXIST lets a producer ask for the default topic's."""
    node, topic = request.node, text_of(request.fields, "topic")
    own = _own_queues(node, topic)
    if own is not None and topic != DEFAULT_TOPIC:
        request.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    queues = node.brokers.queues_of(topic)
    brokers = node.brokers.entries({one.broker_name for one in queues})
    if own is not None:
        queues.insert(0, own)
        brokers.insert(0, node.broker_entry(request.client))
    if not queues:
        remark = f"No topic route info in name server for the topic: {topic}"
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
    is_standard = request.command.version >= STANDARD_JSON_FROM or flag_of(
        request.fields, "acceptStandardJsonOnly"
    )
    order_config = node.documents.find(KV_KIND, ORDER_NAMESPACE, topic)
    body = encode_route(brokers, queues, is_standard=is_standard, order_config=order_config)
    request.reply(body=body)


def _own_queues(node: RocketMqNode, topic: str) -> QueueEntry | None:
    """Return the queues of a topic of this broker; None without it."""
    name = node.config.broker_name
    if topic == DEFAULT_TOPIC:
        if not node.kernel.settings.topic_defaults.auto_create:
            return None
        count = node.config.default_topic_queues
        return QueueEntry(name, count, count, READABLE | WRITABLE | INHERITED)
    if not is_visible(topic):
        return None
    found = node.find_topic(topic)
    count = 0 if found is None else len(found.partition_ids)
    return QueueEntry(name, count, count) if count else None


def cluster_info(request: Request) -> None:
    """Answer with all brokers and their clusters."""
    request.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER)
    node = request.node
    brokers = [node.broker_entry(request.client), *node.brokers.entries()]
    request.reply(body=encode_cluster(brokers))


def all_topics(request: Request) -> None:
    """Answer with the names of all topics."""
    topics = {*_own_topics(request), *(topic for _, topic in request.node.brokers.topics())}
    request.reply(body=encode_topics(sorted(topics)))


def topics_by_cluster(request: Request) -> None:
    """Answer with the names of a cluster's topics."""
    node, cluster = request.node, text_of(request.fields, "cluster")
    topics = {topic for name, topic in node.brokers.topics() if name == cluster}
    if cluster == node.config.cluster_name:
        topics.update(_own_topics(request))
    request.reply(body=encode_topics(sorted(topics)))


def system_topics(request: Request) -> None:
    """Answer with the names that topics of RocketMQ's servers have, and of cluster and broker."""
    node = request.node
    names = {*SYSTEM_TOPICS, node.config.cluster_name, node.config.broker_name}
    for broker in node.brokers.entries():
        names |= {broker.name, broker.cluster}
    address = str(request.client.advertised)
    request.reply(body=encode_topics(sorted(names), address))


def _own_topics(request: Request) -> list[str]:
    """Return the topics of this broker that the principal may see."""
    node, allows = request.node, request.node.kernel.authorizer.allows
    return [
        topic.name.name
        for topic in node.kernel.topics.topics()
        if is_visible(topic.name.name)
        and allows(request.principal, Operation.DESCRIBE, ResourceType.TOPIC, topic.name.name)
    ]
