"""Policies of queues and exchanges: what they change, and what is shown of them.

A key of a definition stands for the argument of its name with ``x-`` in front; of a limit that
both have the lower one holds, of other values the argument.
"""

import asyncio
from typing import Any, Final

import structlog

from adapters.amqp.names import to_namespace
from adapters.amqp.queue_arguments import (
    CLASSIC,
    NOT_SERVED,
    QUORUM,
    STREAM,
    queue_type,
    to_settings,
)
from adapters.amqp.queues import Declaration, name_of
from adapters.amqp.v091.errors import AmqpFault
from adapters.amqp.v091.fields import Table, to_field
from features.routing.model import ALTERNATE_EXCHANGE
from gateway.errors import GatewayError
from gateway.exchanges.model import ExchangeName
from gateway.kernel import Kernel
from gateway.metadata.changes import Changes
from gateway.policies.manager import EffectivePolicy, Policies
from gateway.policies.model import LIMITS, PolicyTarget, lower_of
from gateway.queues.manager import Queue
from gateway.queues.model import QueueSettings

RENEWED_PER_TURN: Final = 100  # queues that a changed policy looks at in a turn of the loop

log = structlog.get_logger()

_TARGETS: Final = {
    CLASSIC: PolicyTarget.CLASSIC_QUEUE,
    QUORUM: PolicyTarget.QUORUM_QUEUE,
    STREAM: PolicyTarget.STREAM,
}


def with_definition(arguments: Table, definition: dict[str, Any]) -> Table:
    """Return the arguments of a queue merged with a definition of policies."""
    pairs = dict(arguments)
    for key, value in definition.items():
        name = f"x-{key}"
        if name in NOT_SERVED or key == ALTERNATE_EXCHANGE:
            continue
        known = pairs.get(name)
        if known is None:
            pairs[name] = to_field(value)
        elif key in LIMITS and (lower := lower_of(key, known.value, value)) != known.value:
            pairs[name] = to_field(lower)
    return Table(pairs.items())


class QueuePolicies:
    """Policies, applied to the queues and exchanges of the node. Loop only.

    Changes of queues are made with ``changes``, as declarations are, so that a new queue and a new
    policy meet.
    """

    def __init__(
        self, kernel: Kernel, policies: Policies, changes: Changes, lease_ms: int
    ) -> None:
        self._kernel = kernel
        self._changes = changes
        self._lease_ms = lease_ms
        self.policies = policies

    # --- queues

    def settings_for(self, namespace: str, name: str, arguments: Table) -> QueueSettings:
        """Return the settings of a queue: its arguments, merged with its policies.

        Error: ``AmqpFault`` 406. A policy that does not suit the queue is left out.
        """
        own = to_settings(arguments, self._lease_ms)
        if not self.policies.has_any(namespace):
            return own
        found = self._of_queue(namespace, name, arguments)
        if not found.definition:
            return own
        try:
            merged = with_definition(arguments, found.definition)
            return to_settings(merged, self._lease_ms)
        except AmqpFault as fault:
            log.warning("policy left out", queue=name[:255], detail=fault.explanation)
            return own

    def queue_facts(self, queue: Queue) -> dict[str, Any]:
        """Return the fields of a queue's view that tell of its policies."""
        declared = Declaration.of(queue)
        if declared is None:
            return _facts(EffectivePolicy(None, None))
        name = name_of(queue)
        return _facts(self._of_queue(queue.name.namespace, name, declared.arguments))

    def _of_queue(self, namespace: str, name: str, arguments: Table) -> EffectivePolicy:
        return self.policies.of(namespace, _TARGETS[queue_type(arguments)], name)

    # --- exchanges

    def exchange_facts(self, name: ExchangeName) -> dict[str, Any]:
        """Return the fields of an exchange's view that tell of its policies."""
        found = self.policies.of(name.namespace, PolicyTarget.EXCHANGE, name.name)
        return {} if found.policy is None else {"policy": found.policy.name}

    def alternate_of(self, name: ExchangeName) -> str | None:
        """Return the alternate exchange that a policy gives an exchange."""
        found = self.policies.of(name.namespace, PolicyTarget.EXCHANGE, name.name)
        alternate = found.definition.get(ALTERNATE_EXCHANGE)
        return alternate if isinstance(alternate, str) else None

    # --- changes

    def start(self) -> None:
        """Apply the stored policies to exchanges; queues keep their settings."""
        self._kernel.exchanges.set_policy(self.alternate_of)
        self.policies.on_change.append(self._on_change)

    def _on_change(self, namespace: str) -> None:
        self._kernel.exchanges.renew_alternates(namespace)
        self._changes.start(self._renew_queues, namespace)

    async def apply(self, vhost: str) -> None:
        """Wait until queues have what the policies of a vhost say now."""
        await self._changes.make(self._renew_queues, to_namespace(vhost))

    async def _renew_queues(self, namespace: str) -> None:
        queues = self._kernel.queues.queues(namespace, is_sorted=False)
        for count, queue in enumerate(queues, 1):
            if count % RENEWED_PER_TURN == 0:
                await asyncio.sleep(0)
            declared = Declaration.of(queue)
            if declared is None or queue.is_gone or queue.is_away:
                continue
            settings = self.settings_for(namespace, name_of(queue), declared.arguments)
            if settings == queue.settings:
                continue
            try:
                await self._kernel.queues.alter(queue, settings=settings)
            except GatewayError as error:
                log.warning("policy not applied", queue=name_of(queue)[:255], error=str(error))


def _facts(found: EffectivePolicy) -> dict[str, Any]:
    return {
        "policy": None if found.policy is None else found.policy.name,
        "operator_policy": None if found.operator is None else found.operator.name,
        "effective_policy_definition": found.definition,
    }
