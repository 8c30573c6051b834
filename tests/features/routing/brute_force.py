"""Routing by the book: every exchange, every binding, one after the other, without an index."""

from collections.abc import Sequence
from typing import Any

from features.routing.model import (
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    Message,
    Table,
    Value,
)


def pattern_matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Match words by the definition of ``*`` and ``#``."""
    if not pattern:
        return not words
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(pattern_matches(rest, words[skipped:]) for skipped in range(len(words) + 1))
    if not words:
        return False
    return first in {"*", words[0]} and pattern_matches(rest, words[1:])


def words_of(key: str) -> list[str]:
    return key.split(".") if key else []


def same_value(asked: Value, value: Value) -> bool:
    """Compare as Erlang's ``==`` does: numbers by value, other types never across."""
    if asked is None:
        return True
    if isinstance(asked, bool) or isinstance(value, bool):
        return asked is value
    if isinstance(asked, int | float) and isinstance(value, int | float):
        return asked == value
    return plain(asked) == plain(value)


def plain(value: Any) -> object:
    return value.encode() if isinstance(value, str) else value


def headers_match(arguments: Table, headers: Table) -> bool:
    kind = arguments.get("x-match", "all")
    assert isinstance(kind, str)
    asked = [
        (name, value)
        for name, value in arguments.items()
        if name != "x-match" and (kind.endswith("-with-x") or not name.startswith("x-"))
    ]
    met = [name in headers and same_value(value, headers[name]) for name, value in asked]
    return any(met) if kind.startswith("any") else all(met)


def binding_matches(exchange: Exchange, binding: Binding, message: Message) -> bool:
    if exchange.matching_type is ExchangeType.DIRECT:
        return binding.routing_key in message.routing_keys
    if exchange.matching_type is ExchangeType.TOPIC:
        pattern = words_of(binding.routing_key)
        return any(pattern_matches(pattern, words_of(key)) for key in message.routing_keys)
    if exchange.matching_type is ExchangeType.HEADERS:
        return headers_match(binding.arguments, message.headers)
    assert exchange.matching_type in {ExchangeType.FANOUT, ExchangeType.RECENT_HISTORY}
    return True


def queues_of(
    exchanges: dict[str, Exchange], bindings: Sequence[Binding], name: str, message: Message
) -> set[str]:
    """Return the queues: one round over all bindings for each exchange that is reached."""
    reached, queues, done = [name], set(), set()
    while reached:
        at = reached.pop()
        if at in done:
            continue
        done.add(at)
        if at == "":
            queues |= set(message.routing_keys)
            continue
        if at not in exchanges:
            continue
        exchange = exchanges[at]
        found: list[Destination] = [
            one.destination
            for one in bindings
            if one.source == at and binding_matches(exchange, one, message)
        ]
        if not found and exchange.alternate is not None:
            reached.append(exchange.alternate)
        reached += [one.name for one in found if one.is_exchange]
        queues |= {one.name for one in found if not one.is_exchange}
    return queues
