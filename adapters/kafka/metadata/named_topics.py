"""Topics that a request names, each of which gets one answer."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar


class NamedTopic(Protocol):
    """Part of a request about the topic of that name."""

    name: str


T = TypeVar("T", bound=NamedTopic)


def by_name(asked: Sequence[T]) -> Iterator[tuple[T, bool]]:
    """Yield the first part about each name, and whether there are more: Kafka refuses those."""
    counts = Counter(one.name for one in asked)
    first_of: dict[str, T] = {}
    for one in asked:
        first_of.setdefault(one.name, one)
    for name, one in first_of.items():
        yield one, counts[name] > 1
