"""Topics and partitions of routes, remembered until a topic changes."""

from collections.abc import Collection
from weakref import WeakKeyDictionary

from features.routing.route import Route, TargetSet
from gateway.broker import Broker
from gateway.coalescer import Coalescer, TargetGroup
from gateway.model import TopicName
from gateway.partition import Partition
from gateway.slots import partition_for_key
from gateway.topics.manager import Topic, TopicManager


class Plan:
    """Topics of a route; ``group`` are their partitions when each has only one."""

    __slots__ = ("group", "revision", "topics")

    def __init__(self, revision: int, topics: list[Topic]) -> None:
        self.revision = revision
        self.topics = topics
        self.group: Partition | TargetGroup | None = None


class Plans:
    """Plans of a node's routes. Loop only."""

    def __init__(self, topics: TopicManager, broker: Broker, coalescer: Coalescer) -> None:
        self._topics = topics
        self._broker = broker
        self._coalescer = coalescer
        self._plans: WeakKeyDictionary[TargetSet, dict[str, Plan]] = WeakKeyDictionary()
        broker.placement.on_change.append(self._forget)

    def of(self, namespace: str, route: Route) -> Plan:
        """Return the topics of a route; equal routes share it until a topic changes."""
        plans = self._plans.setdefault(route.targets, {})
        plan = plans.get(namespace)
        revision = self._topics.revision
        if plan is None or plan.revision != revision:
            plan = plans[namespace] = Plan(revision, self.targets(namespace, route))
        return plan

    def targets(self, namespace: str, route: Route) -> list[Topic]:
        """Return the topics of a route, without names that are no topics or are internal."""
        found = (self._topics.find(TopicName(namespace, name)) for name in route.targets)
        return [topic for topic in found if topic is not None and not topic.is_internal]

    def group(self, plan: Plan, key: bytes | None) -> Partition | TargetGroup:
        """Return the partitions of messages with a key, as the coalescer takes them."""
        group = plan.group
        if group is None:
            partition = self._broker.partition
            group = self._coalescer.group(
                partition(topic, number_of(topic, key)) for topic in plan.topics
            )
            if all(len(topic.partition_ids) == 1 for topic in plan.topics):
                plan.group = group
        return group

    def _forget(self, _shards: Collection[int]) -> None:
        """Forget the partitions of plans: one that comes back is another object."""
        self._plans.clear()


def number_of(topic: Topic, key: bytes | None) -> int:
    """Return the number of the partition of messages with a key; without one it is the first."""
    return 0 if key is None else partition_for_key(key, len(topic.partition_ids))
