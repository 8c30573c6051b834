"""Policies and operator policies, and how they are merged; pure.

Of a queue's or an exchange's policies the one of the highest priority holds, and one operator
policy beside it. Of a number that both have the lower one holds, of other values the operator's.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from gateway.regexes import compile_regex

Definition = Mapping[str, Any]
LIMITS: Final = frozenset(
    {
        "delivery-limit",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
    }
)
"""Keys of numbers of which the lower one holds."""


class PolicyKind(Enum):
    """Kind of a policy; the value is that of its document."""

    POLICY = "policy"
    OPERATOR = "operator_policy"


class PolicyTarget(Enum):
    """Things that a policy may be for, and the words of ``apply_to`` that include them."""

    CLASSIC_QUEUE = frozenset({"all", "queues", "classic_queues"})
    QUORUM_QUEUE = frozenset({"all", "queues", "quorum_queues"})
    STREAM = frozenset({"all", "queues", "streams"})
    EXCHANGE = frozenset({"all", "exchanges"})


APPLY_TO: Final = frozenset[str]().union(*(target.value for target in PolicyTarget))


class Policy(NamedTuple):
    """Policy of a namespace. ``pattern`` is searched for in names."""

    namespace: str
    name: str
    pattern: str
    apply_to: str
    definition: Definition
    priority: int

    def is_for(self, target: PolicyTarget, name: str) -> bool:
        """Say whether it is for a thing of that name."""
        return self.apply_to in target.value and bool(compile_regex(self.pattern).search(name))


def choose(policies: Iterable[Policy], target: PolicyTarget, name: str) -> Policy | None:
    """Return the policy that holds for a thing: the first of the highest priority."""
    found: Policy | None = None
    for policy in policies:
        is_higher = found is None or policy.priority > found.priority
        if is_higher and policy.is_for(target, name):
            found = policy
    return found


def merge(policy: Policy | None, operator: Policy | None) -> dict[str, Any]:
    """Return the definition that both give.

    >>> one = Policy("", "a", "", "all", {"max-length": 5, "overflow": "drop-head"}, 0)
    >>> other = one._replace(definition={"max-length": 3, "expires": 9})
    >>> merge(one, other)
    {'max-length': 3, 'overflow': 'drop-head', 'expires': 9}
    """
    merged = dict(policy.definition) if policy is not None else {}
    for key, value in (operator.definition if operator is not None else {}).items():
        merged[key] = lower_of(key, merged[key], value) if key in merged else value
    return merged


def lower_of(key: str, first: Any, second: Any) -> Any:  # noqa: ANN401 - values of JSON
    """Return the lower of two numbers of a limit; for other keys, the second value."""
    if key in LIMITS and _is_number(first) and _is_number(second):
        return min(first, second, key=_rank(key))
    return second


def _rank(key: str) -> Callable[[float], float]:
    """Return the order of a limit's values; -1 is no limit where it stands for that."""
    if key == "delivery-limit":
        return lambda value: float("inf") if value < 0 else value
    return float


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
