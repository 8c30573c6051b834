"""Tags of RocketMQ: a message has one at most, a subscription names some or all."""

from typing import Final

from features.selector.model import InvalidSelector, check_size

ALL_TAGS: Final = "*"
_OR: Final = "||"
_TAGS_MAX: Final = 1_000


class TagFilter:
    """Tags of a subscription; ``is_all`` without a choice."""

    __slots__ = ("codes", "is_all", "tags")

    def __init__(self, tags: frozenset[str]) -> None:
        self.tags = tags
        self.is_all = not tags
        self.codes = frozenset(map(hash_code, tags))
        """Hash codes of the tags, as clients send them beside the text."""

    def matches(self, tag: str | None) -> bool:
        """Say whether a message with that tag, or without one, is wanted."""
        return self.is_all or tag in self.tags


def parse_tags(expression: str | None) -> TagFilter:
    """Return the filter of a subscription's expression: ``A || B``, ``*``, or nothing for all.

    Error: ``InvalidSelector`` for an expression without a tag, or with too many.

    >>> sorted(parse_tags("A || B").tags), parse_tags("*").is_all
    (['A', 'B'], True)
    """
    if expression is None or expression in {"", ALL_TAGS}:
        return TagFilter(frozenset())
    check_size(expression)
    tags = {tag for part in expression.split(_OR) if (tag := part.strip())}
    if not tags:
        raise InvalidSelector("no tag is named")
    if len(tags) > _TAGS_MAX:
        raise InvalidSelector(f"{len(tags)} tags are named, at most {_TAGS_MAX} are allowed")
    return TagFilter(frozenset(tags))


def hash_code(text: str) -> int:
    """Return what ``String.hashCode`` of Java returns, a signed integer of 32 bits.

    >>> hash_code("TagA"), hash_code("")
    (2598919, 0)
    """
    data = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for index in range(0, len(data), 2):
        found = (31 * found + (data[index] << 8) + data[index + 1]) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found
