"""Resource types of access rules: the kernel's, and those that adapters contribute."""

from collections.abc import Iterable, Iterator
from typing import Protocol, cast

from gateway import registry
from gateway.auth.ports import KERNEL_TYPES, PatternKind, ResourceType, Rule


class _Contribution(Protocol):
    @property
    def resource_types(self) -> tuple[ResourceType, ...]: ...


class ResourceTypes:
    """Resource types that a node knows, by name.

    Those of built-in adapters are known while they are off, too; they are loaded when a name is
    none of the others.
    """

    def __init__(self, contributed: Iterable[ResourceType] = ()) -> None:
        self._own = {one.name: one for one in (*KERNEL_TYPES, *contributed)}

    def find(self, name: str) -> ResourceType | None:
        """Return the type of that name, None if it is unknown."""
        return self._own.get(name) or next(
            (one for one in built_in_types() if one.name == name), None
        )

    def known(self) -> list[ResourceType]:
        """Return all types, the kernel's first."""
        kernels = {one.name: one for one in KERNEL_TYPES}
        built_in = {one.name: one for one in built_in_types()}
        return [*(kernels | built_in | self._own).values()]

    def resolve(self, rule: Rule) -> Rule:
        """Return a rule of the store with its type and pattern kind; as it is if unknown."""
        found = self.find(rule.resource_type.name)
        if found is None:
            return rule
        kind = next((one for one in found.patterns if one == rule.pattern_kind), None)
        return rule._replace(resource_type=found, pattern_kind=kind or rule.pattern_kind)


def built_in_types() -> Iterator[ResourceType]:
    """Yield the types that built-in adapters contribute."""
    for adapter in registry.CONTRIBUTIONS:
        yield from cast("_Contribution", registry.built_in_contribution(adapter)).resource_types


def kind_named(name: str, resource: ResourceType, known: Iterable[ResourceType]) -> PatternKind:
    """Return the pattern kind of that name, of ``resource`` if it has one. Error: ``KeyError``."""
    for one in (resource, *known):
        for kind in one.patterns:
            if kind.name == name:
                return kind
    raise KeyError(name)
