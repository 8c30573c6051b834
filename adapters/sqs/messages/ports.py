"""The port of the node that sending, receiving and settling use."""

from typing import Protocol

from adapters.sqs.call import Call
from adapters.sqs.messages.state import MessageState
from gateway.auth.ports import Operation
from gateway.clock import Clock
from gateway.delays.sharded import ShardedDelays
from gateway.kernel import Kernel
from gateway.model import TopicName
from gateway.queues.manager import Queue, QueueManager


class MessageNode(Protocol):
    """The node as the code of this room uses it; ``SqsNode`` implements it."""

    @property
    def kernel(self) -> Kernel:
        """The gateway's kernel."""
        ...

    @property
    def clock(self) -> Clock:
        """The kernel's clock."""
        ...

    @property
    def queues(self) -> QueueManager:
        """All queues of the gateway."""
        ...

    @property
    def delays(self) -> ShardedDelays:
        """Messages with a delay of their own."""
        ...

    @property
    def messages(self) -> MessageState:
        """State of the queues that message handlers use."""
        ...

    def arn_of_name(self, name: TopicName) -> str:
        """Return the ARN of a queue by its name."""
        ...

    def authorize_again(self, call: Call, queue: Queue, operation: Operation) -> None:
        """Check the permission of a call that has waited. Error: ``SqsError``."""
        ...
