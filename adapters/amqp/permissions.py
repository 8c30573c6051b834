"""Permissions of a connection, in RabbitMQ's words: configure, write, read.

Configure is to create or delete, write is to publish, read is to receive. A queue is guarded as
its topic. Answers are kept until the rules change.
"""

from collections.abc import Iterable
from typing import Final

from adapters.amqp.names import to_topic_name
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import Table
from features.routing.model import DEFAULT_EXCHANGE
from gateway.auth.ports import Authorizer, Operation, Principal, ResourceType
from gateway.exchanges.standard import DEFAULT_SHOWN, named
from gateway.model import DEFAULT_NAMESPACE, TopicName

ANSWERS_MAX: Final = 1_000
_WORDS: Final = {
    Operation.CREATE: "configure",
    Operation.DELETE: "configure",
    Operation.WRITE: "write",
    Operation.READ: "read",
}


class Access:
    """Permissions of the user of one connection in its vhost."""

    def __init__(
        self, authorizer: Authorizer, principal: Principal, namespace: str, vhost: str
    ) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._namespace = namespace
        self._vhost = vhost
        self._answers: dict[tuple[Operation, str], bool] = {}
        self._revision = -1

    def check_queue(self, operation: Operation, queue_name: str) -> None:
        """Check an operation on a queue. Error: ``AmqpFault`` 403."""
        topic = to_topic_name(self._namespace, queue_name)
        if not self._may(operation, _resource(topic)):
            raise self._refused(operation, "queue", queue_name)

    def check_exchange(self, operation: Operation, exchange: str) -> None:
        """Check an operation on an exchange, guarded as a topic of its name.

        Error: ``AmqpFault`` 403.
        """
        topic = to_topic_name(self._namespace, exchange)
        if not self._may(operation, _resource(topic)):
            raise self._refused(operation, "exchange", exchange)

    def check_publish(self, exchange: str, routing_keys: Iterable[str]) -> None:
        """Check a publish: to an exchange, or by the default exchange to queues.

        ``routing_keys``: those of the headers CC and BCC, too, each of which names a queue there.
        """
        if exchange == DEFAULT_EXCHANGE:
            for queue_name in routing_keys:
                self.check_queue(Operation.WRITE, queue_name)
        else:
            self.check_exchange(Operation.WRITE, exchange)

    def check_dead_letters(self, queue_name: str, arguments: Table) -> None:
        """Check where a new queue's dead letters go: read on the queue, write on the exchange.

        By the default exchange they go to the queue that the arguments name. Where these name
        none, each message names its own: that takes write on ``amq.default``.
        """
        exchange = arguments.value("x-dead-letter-exchange")
        if not isinstance(exchange, str):
            return
        self.check_queue(Operation.READ, queue_name)
        routing_key = arguments.value("x-dead-letter-routing-key")
        if named(exchange) != DEFAULT_EXCHANGE:
            self.check_exchange(Operation.WRITE, exchange)
        elif isinstance(routing_key, str):
            self.check_queue(Operation.WRITE, routing_key)
        else:
            self.check_exchange(Operation.WRITE, DEFAULT_SHOWN)

    def _may(self, operation: Operation, resource: str) -> bool:
        if self._revision != self._authorizer.revision:
            self._revision = self._authorizer.revision
            self._answers.clear()
        key = operation, resource
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[key] = self._authorizer.allows(
                self._principal, operation, ResourceType.TOPIC, resource
            )
        return answer

    def _refused(self, operation: Operation, kind: str, name: str) -> AmqpFault:
        return AmqpFault(
            ReplyCode.ACCESS_REFUSED,
            f"{_WORDS[operation]} access to {kind} '{name}' in vhost '{self._vhost}' refused "
            f"for user '{self._principal.name}'",
        )


def _resource(topic: TopicName) -> str:
    """Return the name of a topic in rules."""
    return (
        topic.name
        if topic.namespace == DEFAULT_NAMESPACE
        else f"{topic.namespace}/{topic.name}"
    )
