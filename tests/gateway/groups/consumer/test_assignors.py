"""Assignors: every partition once, as balanced as can be, and few of them moved."""

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.groups.consumer.assignors import ASSIGNORS, assign_range, assign_uniform
from gateway.groups.consumer.model import NO_PARTITIONS, Subscriber, Targets, TopicPartition

TOPICS = [UUID(int=number) for number in range(1, 6)]


def subscriber(
    name: str, *topics: UUID, target: Sequence[TopicPartition] = (), instance: str | None = None
) -> Subscriber:
    return Subscriber(name, instance, frozenset(topics), frozenset(target))


def check_complete(
    targets: Targets, subscribers: Sequence[Subscriber], counts: Mapping[UUID, int]
) -> None:
    """Each partition that somebody reads has one member, who reads its topic."""
    given_out = [partition for target in targets.values() for partition in target]
    read = frozenset[UUID]().union(*[one.topics for one in subscribers])
    wanted = {(topic, n) for topic in read for n in range(counts.get(topic, 0))}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == wanted
    topics_of = {one.member_id: one.topics for one in subscribers}
    for member_id, target in targets.items():
        assert {topic for topic, _ in target} <= topics_of[member_id]


members = st.dictionaries(
    st.sampled_from("abcdefgh"), st.frozensets(st.sampled_from(TOPICS)), min_size=1
)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9))


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@given(subscriptions=members, counts=counts)
def test_every_partition_has_one_reader(
    assignor: str, subscriptions: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    subscribers = [subscriber(name, *topics) for name, topics in subscriptions.items()]

    targets = ASSIGNORS[assignor](subscribers, counts)

    assert targets.keys() == subscriptions.keys()
    check_complete(targets, subscribers, counts)


@given(subscriptions=members, counts=counts, changes=st.lists(members, max_size=4))
def test_uniform_stays_complete_and_balanced_while_members_change(
    subscriptions: dict[str, frozenset[UUID]],
    counts: dict[UUID, int],
    changes: list[dict[str, frozenset[UUID]]],
) -> None:
    targets: Targets = {}
    for asked in (subscriptions, *changes):
        subscribers = [
            Subscriber(name, None, topics, targets.get(name, NO_PARTITIONS))
            for name, topics in asked.items()
        ]
        targets = assign_uniform(subscribers, counts)
        check_complete(targets, subscribers, counts)
        for one in subscribers:
            for other in subscribers:
                movable = [
                    partition
                    for partition in targets[one.member_id]
                    if partition[0] in other.topics
                ]
                difference = len(targets[one.member_id]) - len(targets[other.member_id])
                assert difference <= 1 or not movable, "a move would balance better"


@given(count=st.integers(1, 200), before=st.integers(1, 12), after=st.integers(1, 12))
def test_uniform_moves_no_more_than_balance_needs(count: int, before: int, after: int) -> None:
    topic = TOPICS[0]
    first = assign_uniform(
        [subscriber(f"m{index:02}", topic) for index in range(before)], {topic: count}
    )
    again = [
        Subscriber(
            f"m{index:02}", None, frozenset({topic}), first.get(f"m{index:02}", NO_PARTITIONS)
        )
        for index in range(after)
    ]

    second = assign_uniform(again, {topic: count})

    kept = sum(len(second[one.member_id] & one.target) for one in again)
    assert kept == sum(min(len(one.target), len(second[one.member_id])) for one in again), (
        "a member got a partition in place of one that it could have kept"
    )
    if before == after:
        assert second == first


def test_range_gives_neighbours_and_the_same_numbers_of_equal_topics() -> None:
    first, second = TOPICS[:2]
    both = (first, second)
    subscribers = [
        subscriber("z", *both),
        subscriber("y", *both, instance="i"),  # static members come first
        subscriber("a", *both),
    ]

    targets = assign_range(subscribers, {first: 4, second: 4})

    numbers = {
        member_id: [sorted(n for topic, n in target if topic == one) for one in both]
        for member_id, target in targets.items()
    }
    assert numbers == {"y": [[0, 1], [0, 1]], "a": [[2], [2]], "z": [[3], [3]]}


def test_a_large_group_is_assigned() -> None:
    topics = [UUID(int=number) for number in range(1, 101)]
    counts = dict.fromkeys(topics, 10)
    subscribers = [
        subscriber(f"m{index}", *topics[index % 50 : index % 50 + 50]) for index in range(300)
    ]

    targets = assign_uniform(subscribers, counts)

    check_complete(targets, subscribers, counts)
    sizes = sorted(len(target) for target in targets.values())
    assert sizes[-1] - sizes[0] <= 1
