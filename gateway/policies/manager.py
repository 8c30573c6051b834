"""The node's policies, kept as documents."""

from collections.abc import Callable
from typing import Any, Final

from gateway.errors import InvalidRequest
from gateway.metadata.documents import Documents
from gateway.policies.model import (
    APPLY_TO,
    Policy,
    PolicyKind,
    PolicyTarget,
    choose,
    merge,
)
from gateway.regexes import InvalidRegex, compile_regex

PRIORITY_MAX: Final = 1 << 31
PATTERN_CHARS_MAX: Final = 2_000


class EffectivePolicy:
    """Policies that hold for one thing, and the definition that they give together."""

    __slots__ = ("definition", "operator", "policy")

    def __init__(self, policy: Policy | None, operator: Policy | None) -> None:
        self.policy = policy
        self.operator = operator
        self.definition: dict[str, Any] = merge(policy, operator)


class Policies:
    """Policies of all namespaces. Loop only.

    ``on_change`` hooks run with the namespace whose policies have changed.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._by_namespace: dict[tuple[PolicyKind, str], list[Policy]] | None = None
        self.on_change: list[Callable[[str], None]] = []
        documents.on_change.append(self._on_document)

    def has_any(self, namespace: str) -> bool:
        """Say whether a namespace has a policy of any kind."""
        return any(self.policies(kind, namespace) for kind in PolicyKind)

    def policies(self, kind: PolicyKind, namespace: str) -> list[Policy]:
        """Return the policies of a namespace, by name."""
        if self._by_namespace is None:
            self._by_namespace = {}
            for one in PolicyKind:
                for key, value in sorted(self._documents.of_kind(one.value).items()):
                    policy = Policy(
                        key.namespace,
                        key.name,
                        value["pattern"],
                        value["apply-to"],
                        value["definition"],
                        value["priority"],
                    )
                    self._by_namespace.setdefault((one, key.namespace), []).append(policy)
        return self._by_namespace.get((kind, namespace), [])

    def find(self, kind: PolicyKind, namespace: str, name: str) -> Policy | None:
        """Return a policy by its name."""
        found = (one for one in self.policies(kind, namespace) if one.name == name)
        return next(found, None)

    def of(self, namespace: str, target: PolicyTarget, name: str) -> EffectivePolicy:
        """Return the policies that hold for a thing of a namespace."""
        policy, operator = (
            choose(self.policies(kind, namespace), target, name)
            for kind in (PolicyKind.POLICY, PolicyKind.OPERATOR)
        )
        return EffectivePolicy(policy, operator)

    async def put(self, kind: PolicyKind, policy: Policy) -> bool:
        """Store a policy; say whether it is new. The definition was checked.

        Errors: ``InvalidRequest``, ``Overloaded``, ``StorageUnavailable``.
        """
        if len(policy.pattern) > PATTERN_CHARS_MAX:
            raise InvalidRequest(
                f"Validation failed\n\npattern has more than {PATTERN_CHARS_MAX} characters\n"
            )
        try:
            compile_regex(policy.pattern)
        except InvalidRegex as error:
            raise InvalidRequest(
                "Validation failed\n\npattern should be regular expression but is invalid: "
                f"{error}\n"
            ) from error
        if policy.apply_to not in APPLY_TO or abs(policy.priority) > PRIORITY_MAX:
            raise InvalidRequest(f"apply-to {policy.apply_to[:80]!r} or priority is not valid")
        value = {
            "pattern": policy.pattern,
            "apply-to": policy.apply_to,
            "definition": dict(policy.definition),
            "priority": policy.priority,
        }
        return await self._documents.put(kind.value, policy.namespace, policy.name, value)

    async def delete(self, kind: PolicyKind, namespace: str, name: str) -> bool:
        """Remove a policy; say whether there was one."""
        return await self._documents.delete(kind.value, namespace, name)

    def _on_document(self, kind: str, key: Any) -> None:  # noqa: ANN401 - see ``Documents``
        if kind in {one.value for one in PolicyKind}:
            self._by_namespace = None
            for hook in self.on_change:
                hook(key.namespace)
