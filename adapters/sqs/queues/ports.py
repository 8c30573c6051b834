"""The port of the node that queue administration uses."""

from typing import Protocol

from adapters.sqs.call import Call
from adapters.sqs.queues.urls import QueueAddress
from gateway.auth.ports import Operation
from gateway.model import TopicName
from gateway.queues.manager import Queue, QueueManager


class QueueNode(Protocol):
    """The node as the code of this room uses it; ``SqsNode`` implements it."""

    @property
    def queues(self) -> QueueManager:
        """All queues of the gateway."""
        ...

    def queue_by_arn(self, arn: str) -> Queue | None:
        """Return the queue of an ARN, or None when there is none."""
        ...

    def namespace(self, account: str, region: str) -> str:
        """Return the namespace of an account's queues in a region."""
        ...

    def address_of(self, name: TopicName) -> QueueAddress:
        """Return the account, region and name of a queue."""
        ...

    def arn_of_name(self, name: TopicName) -> str:
        """Return the ARN of a queue by its name."""
        ...

    def authorize(
        self,
        call: Call,
        target: Queue | TopicName,
        operation: Operation,
        *,
        action: str | None = None,
    ) -> None:
        """Check a caller's permission. Error: ``SqsError`` (``ACCESS_DENIED``)."""
        ...
