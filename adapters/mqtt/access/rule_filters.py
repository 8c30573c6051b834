"""Filters of rules: covering, overlap, and placeholders for the client's names.

A filter is a sequence of levels here. ``%c`` is the client identifier, ``%u`` the user name.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_PLACEHOLDER: Final = re.compile("%[cu]")
_WIDENING: Final = re.compile(r"[+#/\0]|^\$|^$")


class Compiled(NamedTuple):
    """A rule as it is for one client; ``levels`` are those of its filter.

    ``is_exact``: the filter is meant as it is written.
    """

    allows: bool
    publishes: bool
    subscribes: bool
    levels: tuple[str, ...]
    is_exact: bool = False


def covers(rule: Sequence[str], wanted: Sequence[str]) -> bool:
    """Say whether all that ``wanted`` (a filter or a name) matches is matched by ``rule`` too.

    ``a/#`` covers ``a``; a wildcard in front covers no ``$`` (section 4.7.2).

    >>> covers(["a", "+"], ["a", "b"]), covers(["a", "+"], ["a", "#"])
    (True, False)
    """
    if wanted[0].startswith("$") and rule[0] in {"+", "#"}:
        return False
    for index, level in enumerate(rule):
        if level == "#":
            return True
        if index >= len(wanted) or wanted[index] == "#":
            return False
        if level not in ("+", wanted[index]):
            return False
    return len(rule) == len(wanted)


def overlaps(one: Sequence[str], other: Sequence[str]) -> bool:
    """Say whether there may be a topic that both filters match.

    >>> overlaps(["a", "+"], ["+", "b"]), overlaps(["a"], ["b", "#"])
    (True, False)
    """
    for here, there in ((one, other), (other, one)):
        if here[0] in {"+", "#"} and there[0].startswith("$"):
            return False
    for here_level, there_level in zip(one, other, strict=False):
        if "#" in (here_level, there_level):
            return True
        if "+" not in (here_level, there_level) and here_level != there_level:
            return False
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return len(longer) == len(shorter) or longer[len(shorter)] == "#"


def applies(
    rule: Compiled, wanted: Sequence[str], *, to_subscribe: bool, is_shared: bool = False
) -> bool:
    """Say whether a rule is about a topic name to publish to, or a filter to subscribe to.

    An ``allow`` must cover the whole filter; a ``deny`` needs one topic in common with it. For a
    name both are the same. An exact rule applies to its own filter only. The exception is a shared
    subscription, which cannot leave messages out: a ``deny`` applies to it if they have a topic in
    common.
    """
    if rule.is_exact and (rule.allows or not is_shared):
        return (rule.subscribes if to_subscribe else rule.publishes) and rule.levels == tuple(
            wanted
        )
    if not to_subscribe:
        return rule.publishes and covers(rule.levels, wanted)
    return rule.subscribes and (covers if rule.allows else overlaps)(rule.levels, wanted)


def has_placeholder(topic_filter: str) -> bool:
    """Say whether a filter means something else for each client."""
    return _PLACEHOLDER.search(topic_filter) is not None


def is_as_written(topic_filter: str, levels: Sequence[str]) -> bool:
    """Say whether ``levels_for`` has put no wildcard in a name's place."""
    return topic_filter.split("/").count("+") == levels.count("+")


def levels_for(
    topic_filter: str, client_id: str, username: str | None, *, allows: bool
) -> tuple[str, ...] | None:
    """Put the client's own names into a rule's filter; None when it cannot be meant.

    A name that has a wildcard or a ``/``, or begins with ``$``, would change which topics the
    filter matches, and a client must not choose that by its identifier. With such a name an
    ``allow`` matches nothing, and a ``deny`` matches any name in that level's place.
    """
    names = {"%c": client_id, "%u": username or ""}
    levels = []
    for level in topic_filter.split("/"):
        used = [names[found] for found in _PLACEHOLDER.findall(level)]
        if not any(_WIDENING.search(name) for name in used):
            levels.append(_PLACEHOLDER.sub(lambda found: names[found[0]], level))
        elif allows:
            return None
        else:
            levels.append("+")
    return tuple(levels)
