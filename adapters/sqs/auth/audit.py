"""Audit log lines about queues: one per request that changes a queue."""

from collections.abc import Mapping
from typing import Final

from adapters.sqs.call import Answer, Call, Result
from adapters.sqs.errors import SqsError
from gateway.auth.audit import Audit

ACTIONS: Final[Mapping[str, str]] = {
    "AddPermission": "queue.add_permission",
    "CreateQueue": "queue.create",
    "DeleteQueue": "queue.delete",
    "PurgeQueue": "queue.purge",
    "RemovePermission": "queue.remove_permission",
    "SetQueueAttributes": "queue.alter",
    "StartMessageMoveTask": "queue.redrive",
    "TagQueue": "queue.tag",
    "UntagQueue": "queue.untag",
}
"""Audited actions, by their names in SQS. CreateQueue is also audited when the queue existed
before: its caller gets the same answer."""

_NAMES: Final = ("QueueName", "QueueUrl", "SourceArn")


class AuditedAnswer:
    """Answer that writes the audit line before it answers as ``answer`` does."""

    __slots__ = ("_action", "_answer", "_audit", "is_json")

    def __init__(self, answer: Answer, audit: Audit, action: str) -> None:
        self._answer = answer
        self._audit = audit
        self._action = action
        self.is_json = answer.is_json

    def send_json(self, body: bytes) -> None:
        """See ``Answer``; unused, because no audited action answers with ready JSON."""
        self._answer.send_json(body)

    def __call__(self, call: Call, result: Result | None, error: SqsError | None) -> None:
        """See ``Answer``."""
        self._audit.note(call.identity.principal, self._action, _queue_of(call), error)
        self._answer(call, result, error)


def _queue_of(call: Call) -> str:
    """Return the name of the queue in a request: the last part of its name, URL or ARN."""
    text = str(next((call.params[key] for key in _NAMES if key in call.params), ""))
    return text.rsplit("/", 1)[-1].rsplit(":", 1)[-1]
