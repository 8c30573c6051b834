"""The class basic: quality of service, consumers, basic.get, acknowledgements."""

from collections.abc import Coroutine
from typing import Any, Final

from adapters.amqp.node import queue_resource
from adapters.amqp.queues import name_of
from adapters.amqp.replies import REPLY_TO
from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.consuming import PRIORITY, Consumer, start_get
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.handlers import stream
from adapters.amqp.v091.handlers.queue import random_name
from adapters.amqp.v091.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
)
from adapters.amqp.v091.requesting import ReplyConsumer
from adapters.amqp.v091.sources import settle_as
from gateway.auth.ports import Operation
from gateway.queues.consumers import QueueInUse
from gateway.queues.manager import Queue
from gateway.queues.model import Outcome

_TAG_PREFIX: Final = "amq.ctag-"


def qos(channel: Channel, method: BasicQos) -> None:
    """Set the prefetch of later consumers, or of the whole channel where it is global."""
    if method.prefetch_size:
        raise AmqpFault(ReplyCode.NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.channel_prefetch_count = method.prefetch_count
        channel.renew_credit()
    else:
        channel.prefetch_count = method.prefetch_count
    channel.send(BasicQosOk())


def consume(channel: Channel, method: BasicConsume) -> Coroutine[Any, Any, None] | None:
    """Start a consumer."""
    if method.queue == REPLY_TO:
        _consume_replies(channel, method)
        return None
    name = _name_to_read(channel, method.queue)
    if (found := stream.find(channel, name)) is not None:
        tag = _new_tag(channel, method.consumer_tag)
        return stream.consume(channel, method, found, tag)
    _consume_queue(channel, method, _queue_to_read(channel, name))
    return None


def _consume_queue(channel: Channel, method: BasicConsume, queue: Queue) -> None:
    connection = channel.connection
    tag = _new_tag(channel, method.consumer_tag)
    consumer = Consumer(channel, queue, tag, no_ack=method.no_ack)
    try:
        consumer.start(is_exclusive=method.exclusive, priority=_priority(method))
    except QueueInUse:
        text = f"{queue_resource(connection, name_of(queue))} in exclusive use"
        raise AmqpFault(ReplyCode.ACCESS_REFUSED, text) from None
    channel.consumers[tag] = consumer
    if not method.nowait:
        channel.send(BasicConsumeOk(tag))
    channel.renew_credit()


def _new_tag(channel: Channel, consumer_tag: str) -> str:
    """Return the tag of a new consumer. Errors: ``AmqpFault`` 530 and 506."""
    tag = consumer_tag or random_name(_TAG_PREFIX)
    replies = channel.reply_consumer
    if tag in channel.consumers or (replies is not None and replies.tag == tag):
        raise AmqpFault(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    if len(channel.consumers) >= channel.connection.config.consumers_max:
        raise AmqpFault(ReplyCode.RESOURCE_ERROR, "consumers_max is reached")
    return tag


def _consume_replies(channel: Channel, method: BasicConsume) -> None:
    """Start the channel's consumer of direct reply-to. Errors: ``AmqpFault`` 406 and 530."""
    if not method.no_ack:
        text = "reply consumer cannot acknowledge"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
    if channel.reply_consumer is not None:
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, "reply consumer already set")
    tag = _new_tag(channel, method.consumer_tag)
    channel.reply_consumer = ReplyConsumer(channel, tag)
    if not method.nowait:
        channel.send(BasicConsumeOk(tag))


def _name_to_read(channel: Channel, queue_name: str) -> str:
    """Return the name of a queue that the client may receive from. Error: ``AmqpFault``."""
    name = queue_name or channel.last_queue
    if not name:
        raise AmqpFault(ReplyCode.NOT_FOUND, "no previously declared queue")
    channel.connection.access.check_queue(Operation.READ, name)
    return name


def _queue_to_read(channel: Channel, name: str) -> Queue:
    """Return a queue to receive from. Errors: ``AmqpFault``; ``NotLeader`` on another node."""
    connection = channel.connection
    queue = connection.node.get_queue(connection, name)
    if queue.is_away:
        queue.check_here()
    return queue


def _priority(method: BasicConsume) -> int:
    """Return the consumer's priority. Error: ``AmqpFault`` 406 where it is no number."""
    field = method.arguments.find(PRIORITY)
    if field is None:
        return 0
    if not isinstance(field.value, int) or isinstance(field.value, bool):
        text = f"invalid arg '{PRIORITY}' for consumer: {{unacceptable_type,{field.kind}}}"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
    return field.value


def cancel(channel: Channel, method: BasicCancel) -> None:
    """End a consumer; what it has in flight stays with the channel."""
    consumer = channel.consumers.pop(method.consumer_tag, None)
    replies = channel.reply_consumer
    if consumer is not None:
        consumer.cancel()
    elif replies is not None and replies.tag == method.consumer_tag:
        channel.end_reply_consumer()
    if not method.nowait:
        channel.send(BasicCancelOk(method.consumer_tag))


def cancel_ok(channel: Channel, _method: BasicCancelOk) -> None:
    """Ignore the answer to a cancel that the server has sent."""
    del channel


def get(channel: Channel, method: BasicGet) -> None:
    """Deliver one message, or say that there is none."""
    name = _name_to_read(channel, method.queue)
    stream.refuse(channel, name, "basic.get")
    start_get(channel, _queue_to_read(channel, name), no_ack=method.no_ack)


def ack(channel: Channel, method: BasicAck) -> None:
    """Acknowledge messages."""
    channel.ack(method.delivery_tag, multiple=method.multiple)


def nack(channel: Channel, method: BasicNack) -> None:
    """Return messages to their queues, which have not failed by that, or reject them."""
    outcome = Outcome.REQUEUE if method.requeue else Outcome.REJECT
    channel.refuse(method.delivery_tag, outcome, multiple=method.multiple)


def reject(channel: Channel, method: BasicReject) -> None:
    """Return a message that has failed to its queue, or reject it."""
    outcome = Outcome.RELEASE if method.requeue else Outcome.REJECT
    channel.refuse(method.delivery_tag, outcome, multiple=False)


def recover(channel: Channel, method: BasicRecover) -> None:
    """Return all messages of the channel that are not acknowledged."""
    _recover(channel, requeue=method.requeue)
    channel.send(BasicRecoverOk())


def recover_async(channel: Channel, method: BasicRecoverAsync) -> None:
    """Return all messages of the channel that are not acknowledged; without an answer."""
    _recover(channel, requeue=method.requeue)


def _recover(channel: Channel, *, requeue: bool) -> None:
    if not requeue:
        raise AmqpFault(ReplyCode.NOT_IMPLEMENTED, "requeue=false")
    settle_as(channel.unacked.take_all(), Outcome.REQUEUE)
