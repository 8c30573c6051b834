"""Rules as text, in the config file and the admin endpoint."""

from collections.abc import Iterable
from typing import Final, Protocol

from gateway.auth.ports import (
    EVERYBODY,
    Operation,
    PatternKind,
    ResourceType,
    Rule,
    check_rule,
)
from gateway.auth.resource_types import ResourceTypes, kind_named
from gateway.errors import InvalidRequest

_KERNEL_ORDER: Final = (Operation.ALL, *(one for one in Operation if one != Operation.ALL))


class RuleWords(Protocol):
    """Rule with the keys of ``[[auth.rules]]``."""

    @property
    def effect(self) -> str: ...  # noqa: D102 - see ``AuthRule``
    @property
    def operation(self) -> str: ...  # noqa: D102
    @property
    def resource(self) -> str: ...  # noqa: D102
    @property
    def pattern(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def principal(self) -> str: ...  # noqa: D102
    @property
    def client(self) -> str: ...  # noqa: D102
    @property
    def protocol(self) -> str: ...  # noqa: D102
    @property
    def host(self) -> str: ...  # noqa: D102


def to_rule(words: RuleWords, types: ResourceTypes) -> Rule:
    """Return the rule. Errors: ``InvalidRequest`` when it is not valid."""
    if wrong := wrong_word(words, types):
        raise InvalidRequest(": ".join(wrong))
    resource = types.find(words.resource)
    assert resource is not None
    return check_rule(
        Rule(
            words.principal,
            _operation(words.operation, resource, types),
            resource,
            _pattern_kind(words, resource, types),
            words.name,
            allow=words.effect == "allow",
            protocol=words.protocol,
            host=words.host,
            client=_client(words.client, resource, types),
        )
    )


def wrong_word(words: RuleWords, types: ResourceTypes) -> tuple[str, str] | None:
    """Return the key whose word is none that is registered, and what it may be."""
    if types.find(words.resource) is None:
        return "resource", _one_of((one.name for one in types.known()), words.resource)
    operations = operation_words(types)
    if words.operation not in operations:
        return "operation", _one_of(operations, words.operation)
    kinds = dict.fromkeys(kind.name for one in types.known() for kind in one.patterns)
    if words.pattern and words.pattern not in kinds:
        return "pattern", _one_of(kinds, words.pattern)
    return None


def operation_words(types: ResourceTypes) -> list[str]:
    """Return all words for operations: the kernel's, and those of resource types."""
    own = dict.fromkeys(word for one in types.known() for word in one.words)
    return [*(one.value for one in _KERNEL_ORDER), *own]


def _one_of(names: Iterable[str], wrong: str) -> str:
    *some, last = map(repr, names)
    return f"input should be {', '.join(some)} or {last}, not {wrong[:80]!r}"


def _operation(word: str, resource: ResourceType, types: ResourceTypes) -> Operation:
    operation = resource.words.get(word)
    if operation is not None:
        return operation
    owner = next((one for one in types.known() if word in one.words), None)
    if owner is not None:
        whose = owner.clients or f"clients of {owner.name}"
        msg = f"{word} is what {whose} do, and so for {owner.name}"
        raise InvalidRequest(msg)
    return Operation(word)


def _pattern_kind(
    words: RuleWords, resource: ResourceType, types: ResourceTypes
) -> PatternKind:
    if not words.pattern:
        return resource.pattern_for(words.name)
    return kind_named(words.pattern, resource, types.known())


def _client(client: str, resource: ResourceType, types: ResourceTypes) -> str:
    if client != EVERYBODY and not resource.clients:
        able = " or ".join(one.title for one in types.known() if one.clients)
        msg = f"a rule for one client identifier is for {able}, not for {resource.title}"
        raise InvalidRequest(msg)
    return client
