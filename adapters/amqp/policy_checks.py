"""Checks of policies' definitions, with RabbitMQ's texts.

A key that would have no effect is refused as one that is not known, but for those that only say
how RabbitMQ places and stores queues: they are kept and shown.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from adapters.amqp.queue_arguments import NOT_SERVED, check_served
from adapters.amqp.v091.errors import AmqpFault
from adapters.amqp.v091.fields import Table, to_field
from gateway.errors import InvalidRequest
from gateway.policies.model import APPLY_TO, PolicyKind

_Check = Callable[[object], bool]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _at_least(low: int) -> _Check:
    def check(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= low

    return check


def _one_of(*words: str) -> _Check:
    def check(value: object) -> bool:
        return isinstance(value, str) and value in words

    return check


def _anything(_value: object) -> bool:
    return True


_EFFECTIVE: Final[Mapping[str, tuple[_Check, str]]] = {
    "alternate-exchange": (_is_text, "alternate exchange name"),
    "dead-letter-exchange": (_is_text, "dead letter exchange name"),
    "dead-letter-routing-key": (_is_text, "dead letter routing key"),
    "delivery-limit": (_at_least(0), "delivery limit"),
    "expires": (_at_least(1), "queue expiry"),
    "max-length": (_at_least(0), "maximum length"),
    "max-length-bytes": (_at_least(0), "maximum length in bytes"),
    "message-ttl": (_at_least(0), "message TTL"),
    "overflow": (
        _one_of("drop-head", "reject-publish", "reject-publish-dlx"),
        "overflow value",
    ),
}
_KEPT: Final[Mapping[str, tuple[_Check, str]]] = {
    "dead-letter-strategy": (_one_of("at-most-once", "at-least-once"), "dead letter strategy"),
    "ha-mode": (_one_of("all", "exactly", "nodes"), "ha-mode"),
    "ha-params": (_anything, "ha-params"),
    "ha-promote-on-failure": (_one_of("always", "when-synced"), "ha-promote-on-failure"),
    "ha-promote-on-shutdown": (_one_of("always", "when-synced"), "ha-promote-on-shutdown"),
    "ha-sync-batch-size": (_at_least(1), "ha-sync-batch-size"),
    "ha-sync-mode": (_one_of("automatic", "manual"), "ha-sync-mode"),
    "initial-cluster-size": (_at_least(0), "cluster size"),
    "max-in-memory-bytes": (_at_least(0), "maximum memory in bytes"),
    "max-in-memory-length": (_at_least(0), "maximum memory in bytes"),
    "max-segment-size": (_at_least(0), "segment size"),
    "queue-leader-locator": (
        _one_of("client-local", "balanced", "random", "least-leaders"),
        "queue leader locator value",
    ),
    "queue-master-locator": (_is_text, "queue master locator"),
    "queue-mode": (_one_of("default", "lazy"), "queue-mode value"),
    "queue-version": (_at_least(1), "queue-version value"),
    "target-group-size": (_at_least(1), "target group size"),
}
_OPERATORS: Final = frozenset(
    {
        "delivery-limit",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "overflow",
        "target-group-size",
    }
)


def check_definition(kind: PolicyKind, definition: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return a definition that is valid. Error: ``InvalidRequest``."""
    if not isinstance(definition, dict) or not definition:
        raise _failed("no policy provided")
    unknown = sorted(key for key in definition if not _is_known(kind, key))
    if unknown:
        words = ",".join(f"{{{_shown(key)},{_shown(definition[key])}}}" for key in unknown)
        raise _failed(f"[{words}] are not recognised policy settings")
    for key, value in definition.items():
        check, what = _EFFECTIVE.get(key) or _KEPT[key]
        if not check(value):
            raise _failed(f"{_shown(value)} is not a valid {what}")
    _check_effective(definition)
    return definition


def _is_known(kind: PolicyKind, key: str) -> bool:
    if kind is PolicyKind.OPERATOR and key not in _OPERATORS:
        return False
    return key in _KEPT or (key in _EFFECTIVE and f"x-{key}" not in NOT_SERVED)


def _check_effective(definition: Mapping[str, Any]) -> None:
    """Refuse values that a queue would be refused for."""
    pairs = [
        (f"x-{key}", to_field(value)) for key, value in definition.items() if key in _EFFECTIVE
    ]
    try:
        check_served(Table(pairs), "policy")
    except AmqpFault as fault:
        raise _failed(fault.explanation) from fault


def check_apply_to(text: Any) -> str:  # noqa: ANN401 - JSON
    """Return the targets of a policy. Error: ``InvalidRequest``."""
    if not isinstance(text, str) or text not in APPLY_TO:
        raise _failed(
            f"apply-to '{str(text)[:80]}' unrecognised; should be 'queues', 'exchanges', "
            "'classic_queues', 'quorum_queues', 'streams' or 'all'"
        )
    return text


def check_priority(priority: Any) -> int:  # noqa: ANN401 - JSON
    """Return the priority of a policy. Error: ``InvalidRequest``."""
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise _failed(f"priority should be a number, actually was {_shown(priority)}")
    return priority


def _failed(text: str) -> InvalidRequest:
    return InvalidRequest(f"Validation failed\n\n{text}\n")


def _shown(value: object) -> str:
    """Return a value as Erlang's terms show it."""
    if isinstance(value, str):
        return f'<<"{value[:80]}">>'
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)[:80]
