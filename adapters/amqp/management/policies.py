"""Policies and operator policies: lists, one of them, setting and removing."""

from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from adapters.amqp.management.body_fields import need, text_of
from adapters.amqp.management.call import Call, Handler
from adapters.amqp.management.errors import not_found
from adapters.amqp.management.listing import reply, reply_list, rows_as_items
from adapters.amqp.names import to_namespace, to_vhost
from adapters.amqp.policy_checks import check_apply_to, check_definition, check_priority
from gateway.policies.model import Policy, PolicyKind


def policy_view(policy: Policy) -> dict[str, Any]:
    """Return a policy as JSON."""
    return {
        "vhost": to_vhost(policy.namespace),
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def to_policy(kind: PolicyKind, vhost: str, name: str, body: dict[str, Any]) -> Policy:
    """Return the policy that a body describes. Errors: ``ApiFault`` 400, ``InvalidRequest``."""
    need(body, "pattern", "definition")
    return Policy(
        to_namespace(vhost),
        name,
        text_of(body, "pattern"),
        check_apply_to(body.get("apply-to") or "all"),
        check_definition(kind, body.get("definition")),
        check_priority(body.get("priority", 0)),
    )


def lister(kind: PolicyKind) -> Handler:
    """Return the handler of a list."""

    async def list_all(call: Call) -> Response:
        found = [
            policy_view(policy)
            for vhost in call.vhosts()
            for policy in call.node.policies.policies.policies(kind, to_namespace(vhost))
        ]
        return await reply_list(call, rows_as_items(found, "vhost", "name"))

    return list_all


def getter(kind: PolicyKind) -> Handler:
    """Return the handler for one policy."""

    async def get(call: Call) -> Response:
        return reply(call, policy_view(_find(call, kind)))

    return get


def putter(kind: PolicyKind) -> Handler:
    """Return the handler that sets a policy; queues have it when the answer is sent."""

    async def put(call: Call) -> Response:
        policy = to_policy(kind, call.vhost, call.parts["name"], await call.body())
        with call.audit(f"{kind.value}.put", f"{policy.name} in {call.vhost}"):
            is_new = await call.node.policies.policies.put(kind, policy)
            await call.node.policies.apply(call.vhost)
        return Response(status_code=HTTPStatus.CREATED if is_new else HTTPStatus.NO_CONTENT)

    return put


def deleter(kind: PolicyKind) -> Handler:
    """Return the handler that removes a policy."""

    async def delete(call: Call) -> Response:
        policy = _find(call, kind)
        with call.audit(f"{kind.value}.delete", f"{policy.name} in {call.vhost}"):
            await call.node.policies.policies.delete(kind, policy.namespace, policy.name)
            await call.node.policies.apply(call.vhost)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    return delete


def _find(call: Call, kind: PolicyKind) -> Policy:
    policies = call.node.policies.policies
    found = policies.find(kind, call.namespace, call.parts["name"])
    if found is None:
        raise not_found()
    return found
