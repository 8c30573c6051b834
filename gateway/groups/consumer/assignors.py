"""Assignors of consumer groups: who reads which partitions. Pure functions.

``uniform`` balances first, then keeps as much of the present target as it can. ``range`` gives
each member neighbouring numbers, the same ones in all topics of equal size. Both are those of
Apache Kafka 4 (KIP-848); where several assignments are as good, the choice may differ.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from gateway.groups.consumer.model import Partitions, Subscriber, Targets, TopicPartition

PASSES_MAX: Final = 16
"""Rounds of balancing over all topics when subscriptions differ; two or three are usual."""

Assignor = Callable[[Sequence[Subscriber], Mapping[UUID, int]], Targets]


def assign_uniform(subscribers: Sequence[Subscriber], counts: Mapping[UUID, int]) -> Targets:
    """Return balanced targets; ``counts`` has the number of partitions of each topic.

    >>> from uuid import UUID
    >>> topic = UUID(int=1)
    >>> two = [Subscriber(name, None, frozenset({topic}), frozenset()) for name in "ab"]
    >>> sorted(len(target) for target in assign_uniform(two, {topic: 5}).values())
    [2, 3]
    """
    subscriptions = {subscriber.topics for subscriber in subscribers}
    if len(subscriptions) == 1:
        return _assign_equal(subscribers, subscriptions.pop(), counts)
    return _Balancing(subscribers, counts).run()


def assign_range(subscribers: Sequence[Subscriber], counts: Mapping[UUID, int]) -> Targets:
    """Return targets of neighbouring partitions, static members first."""
    members_of: defaultdict[UUID, list[str]] = defaultdict(list)
    for subscriber in sorted(subscribers, key=_range_order):
        for topic in subscriber.topics:
            members_of[topic].append(subscriber.member_id)
    targets: dict[str, list[TopicPartition]] = {one.member_id: [] for one in subscribers}
    for topic, members in members_of.items():
        share, extra = divmod(counts.get(topic, 0), len(members))
        start = 0
        for index, member_id in enumerate(members):
            end = start + share + (index < extra)
            targets[member_id] += [(topic, number) for number in range(start, end)]
            start = end
    return {member_id: frozenset(target) for member_id, target in targets.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR: Final = "uniform"


def _range_order(subscriber: Subscriber) -> tuple[bool, str]:
    if subscriber.instance_id is not None:
        return False, subscriber.instance_id
    return True, subscriber.member_id


def _all_partitions(
    topics: Iterable[UUID], counts: Mapping[UUID, int]
) -> dict[TopicPartition, None]:
    """Return the partitions of topics, in order."""
    return {
        (topic, number): None
        for topic in sorted(topics)
        for number in range(counts.get(topic, 0))
    }


def _assign_equal(
    subscribers: Sequence[Subscriber], topics: frozenset[UUID], counts: Mapping[UUID, int]
) -> Targets:
    """Assign to members that all read the same topics; linear in partitions and members."""
    free = _all_partitions(topics, counts)
    quota, extra = divmod(len(free), len(subscribers))
    targets: dict[str, list[TopicPartition]] = {}
    for subscriber in subscribers:
        kept = [partition for partition in subscriber.target if partition in free]
        allowed = quota
        if len(kept) > quota and extra:
            allowed, extra = quota + 1, extra - 1
        if len(kept) > allowed:
            kept = sorted(kept)[:allowed]
        for partition in kept:
            del free[partition]
        targets[subscriber.member_id] = kept
    left = iter(free)
    for kept in targets.values():
        while len(kept) < quota:
            kept.append(next(left))
    for kept in targets.values():
        if extra and len(kept) == quota:
            kept.append(next(left))
            extra -= 1
    return {member_id: frozenset(kept) for member_id, kept in targets.items()}


class _Balancing:
    """Assignment to members that read different topics."""

    def __init__(self, subscribers: Sequence[Subscriber], counts: Mapping[UUID, int]) -> None:
        self._counts = counts
        self._subscribers = subscribers
        self._readers: defaultdict[UUID, list[int]] = defaultdict(list)
        for index, subscriber in enumerate(subscribers):
            for topic in subscriber.topics:
                if topic in counts:
                    self._readers[topic].append(index)
        # The topics that few members read come first: the others can make up for them.
        self._topics = sorted(
            self._readers, key=lambda topic: (len(self._readers[topic]), topic)
        )
        self._loads = [0] * len(subscribers)
        self._held: dict[UUID, dict[int, list[int]]] = {topic: {} for topic in self._topics}

    def run(self) -> Targets:
        """Return the targets by member."""
        free = self._keep_present()
        for topic in self._topics:
            self._fill(topic, free[topic])
        for _ in range(PASSES_MAX):
            if not sum([self._balance(topic) for topic in self._topics]):
                break
        return self._targets()

    def _keep_present(self) -> dict[UUID, list[int]]:
        """Keep what members have and still read; return the other partitions by topic."""
        taken: set[TopicPartition] = set()
        for index, subscriber in enumerate(self._subscribers):
            for topic, number in subscriber.target:
                is_there = topic in subscriber.topics and number < self._counts.get(topic, 0)
                if is_there and (topic, number) not in taken:
                    taken.add((topic, number))
                    self._give(topic, number, index)
        return {
            topic: [
                number for number in range(self._counts[topic]) if (topic, number) not in taken
            ]
            for topic in self._topics
        }

    def _give(self, topic: UUID, number: int, index: int) -> None:
        self._held[topic].setdefault(index, []).append(number)
        self._loads[index] += 1

    def _fill(self, topic: UUID, numbers: Sequence[int]) -> None:
        """Give free partitions of a topic to its least loaded readers."""
        if not numbers:
            return
        readers = [(self._loads[index], index) for index in self._readers[topic]]
        heapq.heapify(readers)
        for number in numbers:
            load, index = readers[0]
            self._give(topic, number, index)
            heapq.heapreplace(readers, (load + 1, index))

    def _balance(self, topic: UUID) -> int:
        """Move partitions of a topic to less loaded readers; return how many were moved."""
        held = self._held[topic]
        least = [(self._loads[index], index) for index in self._readers[topic]]
        most = [(-self._loads[index], index) for index, numbers in held.items() if numbers]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = 0
        while most:
            _, source = most[0]
            load, target = least[0]
            if self._loads[target] != load:  # It was a source meanwhile.
                heapq.heapreplace(least, (self._loads[target], target))
                continue
            if self._loads[source] - load < 2:  # noqa: PLR2004 - a move would change nothing
                break
            self._give(topic, held[source].pop(), target)
            self._loads[source] -= 1
            moved += 1
            heapq.heapreplace(least, (self._loads[target], target))
            if held[source]:
                heapq.heapreplace(most, (-self._loads[source], source))
            else:
                heapq.heappop(most)
        return moved

    def _targets(self) -> Targets:
        targets: list[list[TopicPartition]] = [[] for _ in self._subscribers]
        for topic, held in self._held.items():
            for index, numbers in held.items():
                targets[index] += [(topic, number) for number in numbers]
        return {
            subscriber.member_id: _frozen(target)
            for subscriber, target in zip(self._subscribers, targets, strict=True)
        }


def _frozen(target: list[TopicPartition]) -> Partitions:
    return frozenset(target)
