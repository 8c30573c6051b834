"""Rules as the words of ``[[auth.rules]]``, for the REST interface and for exports."""

from typing import Literal

from gateway.auth.ports import EVERYBODY, Rule
from gateway.config.base import FrozenConfig


class RuleText(FrozenConfig):
    """Rule with the keys of ``[[auth.rules]]``."""

    effect: Literal["allow", "deny"]
    operation: str
    resource: str
    pattern: str = ""
    name: str = ""
    principal: str = EVERYBODY
    client: str = EVERYBODY
    protocol: str = EVERYBODY
    host: str = EVERYBODY


def rule_view(rule: Rule, source: str) -> dict[str, str]:
    """Return a rule in the words of the config; ``source`` says where it is kept."""
    own = {operation: word for word, operation in rule.resource_type.words.items()}
    return {
        "effect": "allow" if rule.allow else "deny",
        "operation": own.get(rule.operation, rule.operation.value),
        "resource": rule.resource_type.name,
        "pattern": rule.pattern_kind.name,
        "name": rule.pattern,
        "principal": rule.principal,
        "client": rule.client,
        "protocol": rule.protocol,
        "host": rule.host,
        "source": source,
    }
