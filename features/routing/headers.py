"""Headers exchange: bindings match by the values of headers, whatever the routing key.

The argument ``x-match`` of a binding says how:

    all (default)   every argument matches
    any             one argument matches at least
    all-with-x      as all, and arguments that begin with ``x-`` count, too
    any-with-x      as any, and arguments that begin with ``x-`` count, too

``x-match`` itself never counts. A void argument asks for the presence of a header. Values are
compared by value, not by type letter: 5 equals 5.0 and text equals its UTF-8 bytes, but the text
"5" does not equal 5, nor does true equal 1. So ``all`` without arguments matches every message,
and ``any`` without arguments none.
"""

from collections.abc import Hashable, Iterator
from typing import Final, NamedTuple

from features.routing.destinations import Destinations
from features.routing.model import (
    Binding,
    Destination,
    InvalidBinding,
    Message,
    Table,
    Value,
    format_arguments,
)

X_MATCH: Final = "x-match"
_KINDS: Final = ("all", "any", "all-with-x", "any-with-x")
_EXTENSION: Final = "x-"

Condition = tuple[str, Hashable]  # a header's name and the value asked for
_PRESENT: Final = "present"  # in place of a value: any will do


class _Rule(NamedTuple):
    """Binding of kind ``all``: its destination and all its conditions."""

    destination: Destination
    conditions: tuple[Condition, ...]


class HeadersIndex:
    """Bindings of a headers exchange, found by one of their conditions.

    A binding of kind ``any`` is listed under each of its conditions, one of kind ``all`` under
    the condition that the fewest others are listed under. So a message meets only bindings that
    ask for a header that it has.
    """

    def __init__(self) -> None:
        self._any: dict[Condition, Destinations] = {}
        self._all: dict[Condition, dict[Binding, _Rule]] = {}
        self._unconditional = Destinations()
        self._listed: dict[Binding, Condition] = {}  # of kind ``all``
        self.touched = 0

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        kind, conditions = parse_match(binding)
        if kind.startswith("any"):
            for condition in conditions:
                self._any.setdefault(condition, Destinations()).add(binding.destination)
        elif not conditions:
            self._unconditional.add(binding.destination)
        else:
            rarest = min(conditions, key=lambda one: len(self._all.get(one, ())))
            self._listed[binding] = rarest
            rule = _Rule(binding.destination, conditions)
            self._all.setdefault(rarest, {})[binding] = rule

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        kind, conditions = parse_match(binding)
        if kind.startswith("any"):
            for condition in conditions:
                destinations = self._any[condition]
                destinations.remove(binding.destination)
                if not destinations:
                    del self._any[condition]
        elif not conditions:
            self._unconditional.remove(binding.destination)
        else:
            listed = self._listed.pop(binding)
            rules = self._all[listed]
            del rules[binding]
            if not rules:
                del self._all[listed]

    def match(self, message: Message, found: Destinations) -> None:
        """Add the destinations whose conditions the message's headers meet."""
        found.update(self._unconditional)
        met = met_conditions(message.headers)
        for condition in met:
            self.touched += 1
            if (destinations := self._any.get(condition)) is not None:
                found.update(destinations)
            rules = self._all.get(condition)
            if rules is None:
                continue
            self.touched += len(rules)
            for rule in rules.values():
                if met.issuperset(rule.conditions):
                    found.add(rule.destination)


def met_conditions(headers: Table) -> set[Condition]:
    """Return all conditions that a message's headers meet."""
    return {
        condition
        for name, value in headers.items()
        for condition in ((name, comparable(value)), (name, _PRESENT))
    }


def check_match(binding: Binding) -> None:
    """Check the argument ``x-match``. Error: ``InvalidBinding``."""
    kind = binding.arguments.get(X_MATCH, "all")
    if not isinstance(kind, str):
        msg = (
            f"Invalid x-match field type {type(kind).__name__} (value {kind!r}); "
            "expected longstr"
        )
        raise InvalidBinding(msg)
    if kind not in _KINDS:
        *some, last = _KINDS
        msg = f"Invalid x-match field value {kind!r}; expected {', '.join(some)}, or {last}"
        raise InvalidBinding(msg)


def comparable(value: Value) -> Hashable:
    """Return a form of a header's value that is equal for equal values.

    >>> comparable(5) == comparable(5.0), comparable("5") == comparable(5)
    (True, False)
    """
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list | dict):
        return ("table", format_arguments({"": value}))
    if isinstance(value, bytes | int | float):
        return value
    return ("void",)


def parse_match(binding: Binding) -> tuple[str, tuple[Condition, ...]]:
    """Return the kind of a binding, as ``x-match`` names it, and its conditions."""
    arguments = binding.arguments
    kind = arguments.get(X_MATCH, "all")
    if kind not in _KINDS:
        kind = "all"
    assert isinstance(kind, str)
    return kind, tuple(_conditions(arguments, extensions=kind.endswith("-with-x")))


def _conditions(arguments: dict[str, Value], *, extensions: bool) -> Iterator[Condition]:
    for name, value in arguments.items():
        if name == X_MATCH or (name.startswith(_EXTENSION) and not extensions):
            continue
        yield name, _PRESENT if value is None else comparable(value)
