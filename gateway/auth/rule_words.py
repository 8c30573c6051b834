"""Rules as text, in the config file and the admin endpoint."""

from collections.abc import Mapping
from typing import Final, Protocol

from gateway.auth.ports import Operation, PatternKind, ResourceType, Rule, check_rule
from gateway.errors import InvalidRequest

MQTT_WORDS: Final[Mapping[str, Operation]] = {
    "publish": Operation.WRITE,
    "subscribe": Operation.READ,
}


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


def to_rule(words: RuleWords) -> Rule:
    """Return the rule. Errors: ``InvalidRequest`` when it is not valid."""
    resource = ResourceType(words.resource)
    operation = MQTT_WORDS.get(words.operation)
    if operation is None:
        operation = Operation(words.operation)
    elif resource is not ResourceType.MQTT_TOPIC:
        msg = f"{words.operation} is what MQTT clients do, and so for mqtt_topic"
        raise InvalidRequest(msg)
    return check_rule(
        Rule(
            words.principal,
            operation,
            resource,
            PatternKind(words.pattern),
            words.name,
            allow=words.effect == "allow",
            protocol=words.protocol,
            host=words.host,
            client=words.client,
        )
    )
