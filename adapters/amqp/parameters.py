"""Runtime parameters: those that have an effect here, and global ones, which are kept for tools.

https://www.rabbitmq.com/docs/parameters. Limits of vhosts and operator policies are parameters of
components; components of plug-ins that are not served are refused, as RabbitMQ does without them.
"""

from typing import Any, Final

from adapters.amqp.names import to_namespace
from adapters.amqp.node import AmqpNode
from gateway.errors import InvalidRequest
from gateway.policies.model import PolicyKind

GLOBAL_PARAMETER: Final = "amqp.global_parameter"  # kinds of documents
VHOST_LIMITS: Final = "vhost-limits"
OPERATOR_POLICY: Final = "operator_policy"
LIMIT_NAMES: Final = ("max-connections", "max-queues")


def check_limits(limits: Any) -> dict[str, int]:  # noqa: ANN401 - JSON
    """Return the limits of a vhost; a negative one is none. Error: ``InvalidRequest``."""
    if not isinstance(limits, dict):
        raise InvalidRequest("Validation failed\n\nlimits are not an object\n")
    for name, value in limits.items():
        if name not in LIMIT_NAMES:
            text = f'Unrecognised terms [{{<<"{name}">>,{value}}}] in limits'
            raise InvalidRequest(f"Validation failed\n\n{text}\n")
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidRequest(f"Validation failed\n\n{name} should be an integer\n")
    return limits


def component_not_found(component: str) -> InvalidRequest:
    """Return the error for a component that no plug-in brings."""
    return InvalidRequest(f"Validation failed\n\ncomponent {component[:255]} not found\n")


def parameters_of(node: AmqpNode) -> list[dict[str, Any]]:
    """Return all parameters of vhosts as JSON: their limits and operator policies."""
    found = []
    for vhost in node.vhosts.names():
        if limits := node.vhosts.limits(vhost):
            found.append(_parameter(VHOST_LIMITS, vhost, "limits", dict(limits)))
        policies = node.policies.policies.policies(PolicyKind.OPERATOR, to_namespace(vhost))
        for policy in policies:
            value = {
                "pattern": policy.pattern,
                "definition": dict(policy.definition),
                "priority": policy.priority,
                "apply-to": policy.apply_to,
            }
            found.append(_parameter(OPERATOR_POLICY, vhost, policy.name, value))
    return found


def _parameter(component: str, vhost: str, name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"component": component, "vhost": vhost, "name": name, "value": value}
