"""Deliveries of a client that are not acknowledged: ranges of delivery tags.

Delivery tags are consecutive within a channel or a subscription, and messages that are delivered
together are consecutive in their partition; so what is in flight is a few ranges, however many
messages.
"""

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

_Source = TypeVar("_Source")
_FIRST_TAG = attrgetter("first_tag")


class Unacked(NamedTuple, Generic[_Source]):
    """Messages in flight with consecutive tags and offsets, from one partition.

    ``size``: number of messages. ``source``: what delivered them, a consumer or a get.
    """

    first_tag: int
    size: int
    source: _Source
    number: int  # of the partition
    first_offset: int
    attempt: int

    @property
    def end_tag(self) -> int:
        """The tag behind the last."""
        return self.first_tag + self.size

    def part(self, first_tag: int, size: int) -> "Unacked[_Source]":
        """Return some of the messages."""
        offset = self.first_offset + first_tag - self.first_tag
        return self._replace(first_tag=first_tag, size=size, first_offset=offset)


class UnackedRanges(Generic[_Source]):
    """Ranges in order of their tags, without overlaps."""

    __slots__ = ("_ranges", "count")

    def __init__(self) -> None:
        self._ranges: list[Unacked[_Source]] = []
        self.count = 0
        """Number of messages."""

    def __iter__(self) -> Iterator[Unacked[_Source]]:
        """Yield the ranges in order."""
        return iter(self._ranges)

    def add(self, added: Unacked[_Source]) -> None:
        """Add messages whose tags are above all that are there."""
        self._ranges.append(added)
        self.count += added.size

    def take(self, tag: int) -> Unacked[_Source] | None:
        """Remove and return one message; None for a tag that is not there."""
        index = bisect_right(self._ranges, tag, key=_FIRST_TAG) - 1
        if index < 0:
            return None
        found = self._ranges[index]
        if tag >= found.end_tag:
            return None
        rest = []
        if before := tag - found.first_tag:
            rest.append(found.part(found.first_tag, before))
        if after := found.end_tag - tag - 1:
            rest.append(found.part(tag + 1, after))
        self._ranges[index : index + 1] = rest
        self.count -= 1
        return found.part(tag, 1)

    def take_up_to(self, tag: int) -> list[Unacked[_Source]] | None:
        """Remove and return all messages up to a tag, which must be there itself; else None."""
        index = bisect_right(self._ranges, tag, key=_FIRST_TAG) - 1
        if index < 0 or tag >= self._ranges[index].end_tag:
            return None
        last = self._ranges[index]
        taken = self._ranges[:index]
        taken.append(last.part(last.first_tag, tag + 1 - last.first_tag))
        after = last.end_tag - tag - 1
        self._ranges[: index + 1] = [last.part(tag + 1, after)] if after else []
        self.count -= sum(one.size for one in taken)
        return taken

    def take_all(self) -> list[Unacked[_Source]]:
        """Remove and return all messages."""
        taken, self._ranges = self._ranges, []
        self.count = 0
        return taken

    def put_back(self, taken: list[Unacked[_Source]]) -> None:
        """Add messages that were taken, and are in flight after all."""
        self._ranges = sorted([*self._ranges, *taken], key=_FIRST_TAG)
        self.count += sum(one.size for one in taken)
