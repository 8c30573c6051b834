"""Rules for MQTT topics: the resource type, and its two kinds of patterns.

What MQTT clients call topics is a resource of its own: many of those names are one topic of the
log. READ is to subscribe, WRITE to publish.
"""

from typing import Final

from gateway.auth.ports import EVERYBODY, Operation, PatternKind, ResourceType, Rule

_MISUSE: Final = "a filter is for MQTT topics, and they take no other pattern"
FILTER: Final = PatternKind("filter", misuse=_MISUSE)
"""Topic filter in which ``%c`` and ``%u`` are the client's own names."""
EQ: Final = PatternKind("eq", misuse=_MISUSE)
"""The same, compared with filters as they are written, not with what they match."""


def _check(rule: Rule) -> str | None:
    if rule.operation not in {Operation.READ, Operation.WRITE, Operation.ALL}:
        return f"{rule.operation.value}: MQTT clients subscribe (read) and publish (write)"
    if rule.protocol != EVERYBODY:
        return "a rule for MQTT topics is for no other protocol, and names none"
    if not _is_filter(rule.pattern):
        return f"{rule.pattern[:80]!r}: '+' stands for a whole level, '#' for all that are left"
    return None


def _is_filter(text: str) -> bool:
    *levels, last = text.split("/")
    return not any(
        "#" in level or ("+" in level and level != "+")
        for level in (*levels, "" if last == "#" else last)
    )


MQTT_TOPIC: Final = ResourceType(
    "mqtt_topic",
    (FILTER, EQ),
    words={"publish": Operation.WRITE, "subscribe": Operation.READ},
    plural="MQTT topics",
    clients="MQTT clients",
    check=_check,
    misuse=_MISUSE,
    closes=False,
)
