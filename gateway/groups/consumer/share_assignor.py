"""Assignor of share groups (KIP-932): a partition may have several members.

The assignment is advice: a partition's leader serves any member of the group. Each member gets a
partition of what it reads, and each partition a member, as long as there are any.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from gateway.groups.consumer.assignors import assign_uniform
from gateway.groups.consumer.model import Subscriber, Targets, TopicPartition

SHARE_ASSIGNOR: Final = "simple"


def assign_simple(subscribers: Sequence[Subscriber], counts: Mapping[UUID, int]) -> Targets:
    """Return targets: balanced first, then as much of the present ones as can be kept.

    Members that read the same topics share them among themselves; ``counts`` has the number of
    partitions of each topic.

    >>> topic = UUID(int=1)
    >>> three = [Subscriber(name, None, frozenset({topic}), frozenset()) for name in "abc"]
    >>> [sorted(number for _, number in one) for one in assign_simple(three, {topic: 2}).values()]
    [[0], [1], [0]]
    """
    by_topics: defaultdict[frozenset[UUID], list[Subscriber]] = defaultdict(list)
    for subscriber in subscribers:
        by_topics[subscriber.topics].append(subscriber)
    targets: dict[str, frozenset[TopicPartition]] = {}
    for topics, members in by_topics.items():
        partition_count = sum(counts.get(topic, 0) for topic in topics)
        if partition_count >= len(members):
            targets.update(assign_uniform(members, counts))
        else:
            targets.update(_assign_one_each(members, topics, counts))
    return targets


def _assign_one_each(
    members: Sequence[Subscriber], topics: frozenset[UUID], counts: Mapping[UUID, int]
) -> Targets:
    """Give each of many members one of few partitions, all partitions about as many members."""
    loads = {
        (topic, number): 0 for topic in sorted(topics) for number in range(counts.get(topic, 0))
    }
    if not loads:
        return {member.member_id: frozenset() for member in members}
    load_max, left = divmod(len(members), len(loads))
    chosen: dict[str, TopicPartition | None] = {}
    for member in members:
        present = sorted(member.target & loads.keys())
        kept = next((one for one in present if loads[one] < load_max), None)
        if kept is not None:
            loads[kept] += 1
        chosen[member.member_id] = kept
    room = [one for one, load in loads.items() for _ in range(load_max - load)]
    room += list(loads)[:left]
    free = iter(room)
    return {
        member_id: frozenset((kept if kept is not None else next(free),))
        for member_id, kept in chosen.items()
    }
