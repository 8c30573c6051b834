"""Limits of vhosts and users on connections and queues; a negative one is none."""

from adapters.amqp.names import to_namespace
from adapters.amqp.node import AmqpNode
from adapters.amqp.v091.errors import AmqpFault, ReplyCode


def check_queue_limit(node: AmqpNode, vhost: str, name: str) -> None:
    """Check that a vhost may have one more queue. Error: ``AmqpFault`` 406."""
    limit = node.vhosts.limits(vhost).get("max-queues", -1)
    if 0 <= limit <= len(node.kernel.queues.queues(to_namespace(vhost), is_sorted=False)):
        text = f"cannot declare queue '{name}': queue limit in vhost '{vhost}' ({limit}) is reached"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)


def check_connection_limits(node: AmqpNode, vhost: str, user: str) -> None:
    """Check that a user may open a vhost beside other connections. Error: ``AmqpFault`` 530."""
    in_vhost = node.vhosts.limits(vhost).get("max-connections", -1)
    of_user = node.tags.limits(user).get("max-connections", -1)
    if in_vhost < 0 and of_user < 0:
        return
    if 0 <= in_vhost <= sum(1 for one in node.opened if one.vhost == vhost):
        text = (
            f"access to vhost '{vhost}' refused for user '{user}': connection limit ({in_vhost}) "
            "is reached"
        )
        raise AmqpFault(ReplyCode.NOT_ALLOWED, text)
    if 0 <= of_user <= sum(1 for one in node.opened if one.user_name == user):
        text = f"connection refused for user '{user}': user connection limit ({of_user}) is reached"
        raise AmqpFault(ReplyCode.NOT_ALLOWED, text)
