"""Permissions of a connection, in RabbitMQ's words: configure, write, read.

Configure is to create or delete, write is to publish, read is to receive. A queue is guarded as
its topic by the kernel's rules; RabbitMQ's own permissions (``rule_types``) allow beside these.
Answers are kept until the rules change.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from adapters.amqp.names import to_topic_name
from adapters.amqp.rule_types import PERMISSION, permission_name
from adapters.amqp.topic_permissions import TopicPermissions
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import Table
from features.routing.model import DEFAULT_EXCHANGE
from gateway.auth.ports import Authorizer, Operation, Principal, ResourceType, Verdict
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
        self,
        authorizer: Authorizer,
        principal: Principal,
        namespace: str,
        vhost: str,
        topics: TopicPermissions | None = None,
    ) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._namespace = namespace
        self._vhost = vhost
        self._topics = topics
        self._answers: dict[tuple[Operation, tuple[str, ...]], bool] = {}
        self._revision = -1

    def check_queue(self, operation: Operation, queue_name: str) -> None:
        """Check an operation on a queue. Error: ``AmqpFault`` 403."""
        topic = to_topic_name(self._namespace, queue_name)
        if not self._may(operation, topic, queue_name):
            raise self._refused(operation, "queue", queue_name)

    def check_exchange(self, operation: Operation, exchange: str) -> None:
        """Check an operation on an exchange, guarded as a topic of its name.

        Error: ``AmqpFault`` 403.
        """
        topic = to_topic_name(self._namespace, exchange)
        if not self._may(operation, topic, exchange):
            raise self._refused(operation, "exchange", exchange)

    def check_publish(self, exchange: str, routing_keys: Iterable[str]) -> None:
        """Check a publish: to an exchange, or by the default exchange to queues.

        ``routing_keys``: those of the headers CC and BCC, too, each of which names a queue there.
        RabbitMQ's permission for the default exchange is that for ``amq.default``.
        """
        if exchange == DEFAULT_EXCHANGE:
            for queue_name in routing_keys:
                topic = to_topic_name(self._namespace, queue_name)
                if not self._may(Operation.WRITE, topic, queue_name, DEFAULT_SHOWN):
                    raise self._refused(Operation.WRITE, "queue", queue_name)
        else:
            self.check_exchange(Operation.WRITE, exchange)

    def check_topic(self, operation: Operation, exchange: str, routing_key: str) -> None:
        """Check a routing key at a topic exchange. Error: ``AmqpFault`` 403."""
        user = self._principal.name
        if self._topics is None or self._topics.allows(
            user, self._vhost, exchange, _WORDS[operation], routing_key
        ):
            return
        raise AmqpFault(
            ReplyCode.ACCESS_REFUSED,
            f"{_WORDS[operation]} access to topic '{routing_key}' in exchange '{exchange}' in "
            f"vhost '{self._vhost}' refused for user '{user}'",
        )

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

    def _may(self, operation: Operation, topic: TopicName, *names: str) -> bool:
        """Return whether the rules for a topic, or a permission for one of the names, allow."""
        if self._revision != self._authorizer.revision:
            self._revision = self._authorizer.revision
            self._answers.clear()
        key = operation, names
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[key] = self._decide(operation, _resource(topic), names)
        return answer

    def _decide(self, operation: Operation, resource: str, names: Sequence[str]) -> bool:
        authorizer, principal = self._authorizer, self._principal
        if authorizer.allows(principal, operation, ResourceType.TOPIC, resource):
            return True
        verdict = authorizer.verdict(principal, operation, ResourceType.TOPIC, resource)
        if principal.is_anonymous or verdict is Verdict.DENIED:
            return False
        asked = Operation.CREATE if operation is Operation.DELETE else operation
        known = [permission_name(self._vhost, name) for name in names]
        return any(
            authorizer.verdict(principal, asked, PERMISSION, name) is Verdict.ALLOWED
            for name in known
        )

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
