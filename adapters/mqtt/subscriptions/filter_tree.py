"""Topic filters with wildcards, by level: which of them match a name (MQTT 5.0 section 4.7).

A node stands where filters part or end; levels that nothing parts are one node's ``skip``. So
there are at most two nodes for each filter, however many levels it has, and a name is compared
with what is left of a filter in one stretch.
"""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

E = TypeVar("E")

_ANY: Final = "+"


class FilterNode(Generic[E]):
    """FilterNode where filters part or end, behind the levels of ``skip`` (``+`` among them).

    ``here`` is of the filter that ends here, ``below`` of the one that ends with ``/#`` here.
    """

    __slots__ = ("below", "children", "here", "plus", "skip")

    def __init__(self, skip: tuple[str, ...] = ()) -> None:
        self.skip = skip
        self.children: dict[str, FilterNode[E]] | None = None
        self.plus: FilterNode[E] | None = None
        self.here: E | None = None
        self.below: E | None = None

    @property
    def has_entry(self) -> bool:
        """Whether a filter ends here."""
        return self.here is not None or self.below is not None

    def is_empty(self) -> bool:
        """Say whether nothing is here, nor behind it."""
        return not self.has_entry and self.plus is None and self.children is None

    def child(self, level: str) -> "FilterNode[E] | None":
        """Return the node of all filters that go on with a level."""
        if level == _ANY:
            return self.plus
        return None if self.children is None else self.children.get(level)

    def put_child(self, level: str, child: "FilterNode[E]") -> None:
        """Let filters go on with a level."""
        if level == _ANY:
            self.plus = child
        elif self.children is None:
            self.children = {level: child}
        else:
            self.children[level] = child

    def drop_child(self, level: str) -> None:
        """Let no filter go on with a level."""
        if level == _ANY:
            self.plus = None
            return
        assert self.children is not None
        del self.children[level]
        if not self.children:
            self.children = None

    def absorb_only_child(self) -> None:
        """Be one with the child when nothing parts here any more."""
        if self.has_entry:
            return
        if self.children is None and self.plus is not None:
            level, child = _ANY, self.plus
        elif self.plus is None and self.children is not None and len(self.children) == 1:
            [(level, child)] = self.children.items()
        else:
            return
        self.skip = (*self.skip, level, *child.skip)
        self.children, self.plus = child.children, child.plus
        self.here, self.below = child.here, child.below


class FilterTree(Generic[E]):
    """Values by filter, given as its levels without a final ``#``."""

    def __init__(self) -> None:
        self.root: FilterNode[E] = FilterNode()

    def reach(self, levels: Sequence[str]) -> FilterNode[E]:
        """Return the node at the end of a filter, made when there is none."""
        node, at = self.root, 0
        while at < len(levels):
            level = levels[at]
            at += 1
            child = node.child(level)
            if child is None:
                child = FilterNode(tuple(levels[at:]))
                node.put_child(level, child)
                return child
            shared = _shared(child.skip, levels, at)
            if shared < len(child.skip):
                upper: FilterNode[E] = FilterNode(child.skip[:shared])
                upper.put_child(child.skip[shared], child)
                child.skip = child.skip[shared + 1 :]
                node.put_child(level, upper)
                child = upper
            node, at = child, at + shared
        return node

    def find(
        self, levels: Sequence[str]
    ) -> tuple[FilterNode[E], FilterNode[E] | None, str] | None:
        """Return (node at the end of a filter, the one before it, the level between), or None."""
        node, before, level, at = self.root, None, "", 0
        while at < len(levels):
            level = levels[at]
            child = node.child(level)
            if child is None:
                return None
            at += 1
            if _shared(child.skip, levels, at) < len(child.skip):
                return None
            before, node, at = node, child, at + len(child.skip)
        return node, before, level

    def tidy(self, node: FilterNode[E], before: FilterNode[E] | None, level: str) -> None:
        """Let no node stand where no filter parts or ends; as ``find`` returned them."""
        if before is None:
            return
        if not node.is_empty():
            node.absorb_only_child()
            return
        before.drop_child(level)
        if before is not self.root:
            before.absorb_only_child()

    def collect(self, topic: str, hits: list[E]) -> None:
        """Append what belongs to the filters that match a name; each node is seen once at most."""
        levels = topic.split("/")
        if not topic.startswith("$"):
            _collect(self.root, levels, 0, hits)
            return
        first = self.root.child(levels[0])
        if first is not None:  # No wildcard stands for such a level (MQTT-4.7.2-1).
            _collect(first, levels, 1, hits)


def _collect(node: FilterNode[E], levels: Sequence[str], at: int, hits: list[E]) -> None:
    """Append what matches from a node on, ``at`` levels behind the name's beginning."""
    count = len(levels)
    waiting: list[tuple[FilterNode[E], int]] = []
    while True:
        child: FilterNode[E] | None = None
        skip = node.skip
        if not skip or _fits(skip, levels, at):
            at += len(skip)
            if node.below is not None:
                hits.append(node.below)
            if at < count:
                children = node.children
                child = None if children is None else children.get(levels[at])
                if child is None:
                    child = node.plus
                elif node.plus is not None:
                    waiting.append((node.plus, at + 1))
            elif node.here is not None:
                hits.append(node.here)
        if child is not None:
            node, at = child, at + 1
        elif waiting:
            node, at = waiting.pop()
        else:
            return


def _shared(skip: tuple[str, ...], levels: Sequence[str], at: int) -> int:
    """Return how many levels of ``skip`` a filter has from ``at`` on."""
    count = min(len(skip), len(levels) - at)
    for index in range(count):
        if skip[index] != levels[at + index]:
            return index
    return count


def _fits(skip: tuple[str, ...], levels: Sequence[str], at: int) -> bool:
    """Say whether a name goes on from ``at`` as ``skip`` says."""
    if len(levels) - at < len(skip):
        return False
    for wanted in skip:
        if wanted != levels[at] and wanted != _ANY:
            return False
        at += 1
    return True
