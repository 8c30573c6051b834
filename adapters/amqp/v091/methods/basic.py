"""Methods of the class basic (60): publishing, consuming, acknowledging."""

from adapters.amqp.v091.methods.model import (
    Bit,
    Fields,
    Long,
    LongLong,
    Method,
    Short,
    ShortStr,
    method,
)


@method(60, 10)
class BasicQos(Method):
    """``basic.qos``."""

    prefetch_size: Long
    prefetch_count: Short
    global_: Bit


@method(60, 11)
class BasicQosOk(Method):
    """``basic.qos-ok``."""


@method(60, 20)
class BasicConsume(Method):
    """``basic.consume``."""

    ticket: Short
    queue: ShortStr
    consumer_tag: ShortStr
    no_local: Bit
    no_ack: Bit
    exclusive: Bit
    nowait: Bit
    arguments: Fields


@method(60, 21)
class BasicConsumeOk(Method):
    """``basic.consume-ok``."""

    consumer_tag: ShortStr


@method(60, 30)
class BasicCancel(Method):
    """``basic.cancel``."""

    consumer_tag: ShortStr
    nowait: Bit


@method(60, 31)
class BasicCancelOk(Method):
    """``basic.cancel-ok``."""

    consumer_tag: ShortStr


@method(60, 40)
class BasicPublish(Method):
    """``basic.publish``."""

    ticket: Short
    exchange: ShortStr
    routing_key: ShortStr
    mandatory: Bit
    immediate: Bit


@method(60, 50)
class BasicReturn(Method):
    """``basic.return``."""

    reply_code: Short
    reply_text: ShortStr
    exchange: ShortStr
    routing_key: ShortStr


@method(60, 60)
class BasicDeliver(Method):
    """``basic.deliver``."""

    consumer_tag: ShortStr
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr


@method(60, 70)
class BasicGet(Method):
    """``basic.get``."""

    ticket: Short
    queue: ShortStr
    no_ack: Bit


@method(60, 71)
class BasicGetOk(Method):
    """``basic.get-ok``."""

    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr
    message_count: Long


@method(60, 72)
class BasicGetEmpty(Method):
    """``basic.get-empty``."""

    cluster_id: ShortStr = ""


@method(60, 80)
class BasicAck(Method):
    """``basic.ack``."""

    delivery_tag: LongLong
    multiple: Bit


@method(60, 90)
class BasicReject(Method):
    """``basic.reject``."""

    delivery_tag: LongLong
    requeue: Bit


@method(60, 100)
class BasicRecoverAsync(Method):
    """``basic.recover-async``."""

    requeue: Bit


@method(60, 110)
class BasicRecover(Method):
    """``basic.recover``."""

    requeue: Bit


@method(60, 111)
class BasicRecoverOk(Method):
    """``basic.recover-ok``."""


@method(60, 120)
class BasicNack(Method):
    """``basic.nack``."""

    delivery_tag: LongLong
    multiple: Bit
    requeue: Bit
