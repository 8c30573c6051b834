"""Declarations of the config file: enforced at a start, and compared with the node later."""

import structlog

from gateway.deployment.carry_out import carry_out
from gateway.deployment.current import current
from gateway.deployment.document import Document, document_of
from gateway.deployment.plan import Action, PlannedChange, plan
from gateway.kernel import Kernel
from gateway.model import DEFAULT_NAMESPACE

log = structlog.get_logger()


async def enforce(kernel: Kernel) -> None:
    """PlannedChange what the config declares with ``enforce`` and the node has otherwise.

    What cannot be changed is logged, and the node starts: drift is no reason to be away.
    """
    wanted = document_of(kernel.settings, enforced_only=True)
    if not (wanted.topics or wanted.queues or wanted.exchanges):
        return
    changes = plan(_there(kernel), wanted, enforces=True)
    for outcome in await carry_out(kernel, DEFAULT_NAMESPACE, changes):
        change = outcome.change
        fields = {
            "kind": change.kind,
            "name": change.name,
            "details": ", ".join(change.details),
        }
        if outcome.error or change.action is Action.CONFLICT:
            log.warning("declared but not enforced", **fields, error=outcome.error)
        else:
            log.info("declared and enforced", action=change.action.value, **fields)


def drift(kernel: Kernel) -> list[PlannedChange]:
    """Return where the node differs from what its config file declares."""
    wanted = document_of(kernel.settings)
    if wanted == Document():
        return []
    return plan(_there(kernel), wanted, enforces=True)


def _there(kernel: Kernel) -> Document:
    return current(kernel, DEFAULT_NAMESPACE, secrets=False)
