"""The assignor of share groups: nobody idle, nothing unread, little moved."""

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from gateway.groups.consumer.model import NO_PARTITIONS, Partitions, Subscriber, Targets
from gateway.groups.consumer.share_assignor import assign_simple

TOPICS = [UUID(int=number) for number in range(1, 4)]


def subscribers(members: int, targets: Targets | None = None) -> list[Subscriber]:
    present = targets or {}
    topics = frozenset(TOPICS)
    names = [f"m{number}" for number in range(members)]
    return [Subscriber(name, None, topics, present.get(name, NO_PARTITIONS)) for name in names]


def loads(targets: Targets) -> Counter[tuple[UUID, int]]:
    return Counter(one for target in targets.values() for one in target)


@given(
    sizes=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    before=st.integers(1, 12),
    after=st.integers(1, 12),
)
def test_partitions_and_members_are_balanced(sizes: list[int], before: int, after: int) -> None:
    counts = dict(zip(TOPICS, sizes, strict=True))
    first = assign_simple(subscribers(before), counts)

    targets = assign_simple(subscribers(after, first), counts)

    partition_count = sum(sizes)
    if not partition_count:
        assert set(targets.values()) == {NO_PARTITIONS}
        return
    shares = [len(target) for target in targets.values()]
    used = loads(targets)
    assert len(used) == partition_count
    assert min(shares) >= 1
    assert max(shares) - min(shares) <= 1
    assert max(used.values()) - min(used.values()) <= 1
    assert assign_simple(subscribers(after, targets), counts) == targets


def test_a_member_that_joins_moves_few() -> None:
    counts = {TOPICS[0]: 2, TOPICS[1]: 0, TOPICS[2]: 0}
    first = assign_simple(subscribers(4), counts)

    second = assign_simple(subscribers(5, first), counts)

    assert sum(first[name] != second[name] for name in first) == 0


def test_members_share_the_topics_that_they_read() -> None:
    one, two = TOPICS[:2]
    members = [
        Subscriber("a", None, frozenset({one}), NO_PARTITIONS),
        Subscriber("b", None, frozenset({one, two}), NO_PARTITIONS),
    ]

    targets = assign_simple(members, {one: 2, two: 1})

    only_one: Partitions = frozenset({(one, 0), (one, 1)})
    assert targets == {"a": only_one, "b": only_one | {(two, 0)}}
