"""Contributions of adapters to the kernel: internal topics, configs, resource types, pages.

An adapter's class says what it adds in its attribute ``CONTRIBUTION``. The node collects them
once, before the storage opens, and hands them to the managers that need them; nothing is
registered by an import. Names belong to their adapter: internal topics begin with ``__<adapter>_``,
topic configs and the adapter's headers with ``<adapter>.``, resource types with ``<adapter>_``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway import registry
from gateway.auth.ports import KERNEL_TYPES, PatternKind, ResourceType
from gateway.auth.resource_types import ResourceTypes
from gateway.errors import GatewayError, InvalidTopicName
from gateway.model import DLQ_PREFIX, check_topic_name
from gateway.topics.config_specs import SPECS, TopicConfigSpec

KERNEL_TOPICS: Final = frozenset(
    {
        "__compaction",
        "__cursors",
        "__delays",
        "__exchange_delays",
        "__groups",
        "__partition_transactions",
        "__producers",
        "__queues",
        "__transactions",
        "__transfers",
    }
)


_KERNEL_PREFIXES: Final = (DLQ_PREFIX,)


_TYPE_NAME: Final = re.compile(r"[a-z0-9_]{1,32}")  # the store's columns have that length
_KERNEL_KINDS: Final[Mapping[str, PatternKind]] = {
    kind.name: kind for one in KERNEL_TYPES for kind in one.patterns
}


class InvalidContribution(GatewayError):
    """Contribution of an adapter that cannot be used, or contradicts another one."""


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page of the console, at ``/console/<name>``; its name is the adapter's, or begins with it.

    ``package`` has the files ``<name>.html``, a template that extends ``layout.html``, and
    ``<name>.js``, its ES module. See docs/console.md.
    """

    name: str
    title: str
    package: str


@dataclass(frozen=True, slots=True)
class Contribution:
    """Additions of one adapter to the kernel.

    ``internal_topics``: names of its internal streams; nobody else may make topics of them.
    ``topic_configs``: configs that any topic may have; ``TopicSettings.contributed`` has their
    values. ``resource_types``: types of resources that access rules may name, with the kinds of
    their patterns. ``console_pages``: its pages of the console.
    """

    internal_topics: tuple[str, ...] = ()
    topic_configs: Mapping[str, TopicConfigSpec] = field(default_factory=dict)
    resource_types: tuple[ResourceType, ...] = ()
    console_pages: tuple[ConsolePage, ...] = ()


class Contributions:
    """The contributions of a node's adapters together.

    Errors: ``InvalidContribution``, which names the adapter and what is wrong.
    """

    def __init__(self, by_adapter: Mapping[str, Contribution] | None = None) -> None:
        internal_topics = dict.fromkeys(KERNEL_TOPICS, "the kernel")
        specs = dict(SPECS)
        contributed: dict[str, TopicConfigSpec] = {}
        for adapter, contribution in (by_adapter or {}).items():
            for name in contribution.internal_topics:
                _check_topic(adapter, name)
                if name in internal_topics:
                    raise _twice(f"internal topic {name!r}", internal_topics[name], adapter)
                internal_topics[name] = f"adapter {adapter!r}"
            for name, spec in contribution.topic_configs.items():
                _check_spec(adapter, name, spec)
                contributed[name] = specs[name] = spec
            for page in contribution.console_pages:
                _check_page(adapter, page)
        self._internal_topics = frozenset(internal_topics)
        self.resource_types = ResourceTypes(_resource_types(by_adapter or {}))
        """Resource types of access rules: the kernel's and those that are contributed."""
        self.specs: Mapping[str, TopicConfigSpec] = dict(sorted(specs.items()))
        """All topic configs: the kernel's and those that are contributed, by name."""
        self.contributed_specs: Mapping[str, TopicConfigSpec] = contributed
        self.header_prefixes = header_prefixes(by_adapter or ())
        """Prefixes of headers that clients cannot set: adapters store such names apart."""

    @classmethod
    def of(cls, adapters: Mapping[str, object]) -> "Contributions":
        """Return what the named adapters contribute. Errors: ``InvalidContribution``."""
        classes = {name: registry.adapter_class(name) for name in adapters}
        return cls({name: _declared(name, found) for name, found in classes.items()})

    def is_internal_topic(self, name: str) -> bool:
        """Say whether a name is an internal stream's, also of built-in adapters that are off."""
        return name in self._internal_topics or (
            name.startswith("__") and name in built_in_topics()
        )


def header_prefixes(adapters: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the reserved prefixes of headers: the kernel's, and ``<adapter>.`` of each adapter.

    Those of built-in adapters are reserved also while they are off.
    """
    names = dict.fromkeys((*registry.ADAPTERS, *adapters))
    return *_KERNEL_PREFIXES, *(f"{name}." for name in names)


def built_in_topics() -> frozenset[str]:
    """Return the internal topics of the kernel and of all built-in adapters."""
    return KERNEL_TOPICS.union(*(found.internal_topics for found in _built_in()))


def _built_in() -> Iterator[Contribution]:
    for name in registry.CONTRIBUTIONS:
        found = registry.built_in_contribution(name)
        assert isinstance(found, Contribution)
        yield found


def _declared(adapter: str, adapter_class: type[Any]) -> Contribution:
    contribution = getattr(adapter_class, "CONTRIBUTION", None) or Contribution()
    if not isinstance(contribution, Contribution):
        msg = f"adapter {adapter!r}: CONTRIBUTION is no gateway.contributions.Contribution"
        raise InvalidContribution(msg)
    return contribution


def _check_topic(adapter: str, name: str) -> None:
    prefix = f"__{adapter}_"
    if not name.startswith(prefix):
        msg = f"adapter {adapter!r}: internal topic {name!r} does not begin with {prefix!r}"
        raise InvalidContribution(msg)
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        msg = f"adapter {adapter!r}: internal topic {name!r}: {error}"
        raise InvalidContribution(msg) from error


def _check_spec(adapter: str, name: str, spec: TopicConfigSpec) -> None:
    prefix = f"{adapter}."
    if name in SPECS:
        raise _twice(f"topic config {name!r}", "the kernel", adapter)
    if not name.startswith(prefix):
        msg = f"adapter {adapter!r}: topic config {name!r} does not begin with {prefix!r}"
        raise InvalidContribution(msg)
    if wrong := spec.check(spec.default):
        msg = f"adapter {adapter!r}: topic config {name!r}: default {spec.default!r} {wrong}"
        raise InvalidContribution(msg)


def _check_page(adapter: str, page: ConsolePage) -> None:
    if not re.fullmatch(rf"{re.escape(adapter)}(_[a-z0-9_]+)?", page.name):
        msg = f"adapter {adapter!r}: console page {page.name!r} does not begin with its name"
        raise InvalidContribution(msg)


def _resource_types(by_adapter: Mapping[str, Contribution]) -> list[ResourceType]:
    origins = {one.name: "the kernel" for one in KERNEL_TYPES}
    found = []
    for adapter, contribution in by_adapter.items():
        for one in contribution.resource_types:
            if one.name in origins:
                raise _twice(f"resource type {one.name!r}", origins[one.name], adapter)
            if wrong := _wrong_type(adapter, one):
                msg = f"adapter {adapter!r}: resource type {one.name!r}: {wrong}"
                raise InvalidContribution(msg)
            origins[one.name] = f"adapter {adapter!r}"
            found.append(one)
    return found


def _wrong_type(adapter: str, resource: ResourceType) -> str | None:
    names = [one.name for one in resource.patterns]
    if not resource.name.startswith(f"{adapter}_"):
        return f"its name does not begin with {adapter + '_'!r}"
    for name in (resource.name, *names):
        if not _TYPE_NAME.fullmatch(name):
            return f"{name!r} is not 1 to 32 lowercase letters, digits and '_'"
    for kind in resource.patterns:
        own = _KERNEL_KINDS.get(kind.name)
        if own is not None and kind is not own:
            return f"pattern kind {kind.name!r} is the kernel's"
        if names.count(kind.name) > 1:
            return f"pattern kind {kind.name!r} is there twice"
        if resource.closes and kind.matches is None:
            return f"pattern kind {kind.name!r} has no matches, and the kernel decides"
    return None if names else "it has no pattern kind"


def _twice(what: str, first: str, adapter: str) -> InvalidContribution:
    return InvalidContribution(f"{what} is contributed by {first} and by adapter {adapter!r}")
