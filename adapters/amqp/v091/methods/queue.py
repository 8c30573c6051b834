"""Methods of the class queue (50)."""

from adapters.amqp.v091.methods.model import (
    Bit,
    Fields,
    Long,
    Method,
    Short,
    ShortStr,
    method,
)


@method(50, 10)
class QueueDeclare(Method):
    """``queue.declare``."""

    ticket: Short
    queue: ShortStr
    passive: Bit
    durable: Bit
    exclusive: Bit
    auto_delete: Bit
    nowait: Bit
    arguments: Fields


@method(50, 11)
class QueueDeclareOk(Method):
    """``queue.declare-ok``."""

    queue: ShortStr
    message_count: Long
    consumer_count: Long


@method(50, 20)
class QueueBind(Method):
    """``queue.bind``."""

    ticket: Short
    queue: ShortStr
    exchange: ShortStr
    routing_key: ShortStr
    nowait: Bit
    arguments: Fields


@method(50, 21)
class QueueBindOk(Method):
    """``queue.bind-ok``."""


@method(50, 30)
class QueuePurge(Method):
    """``queue.purge``."""

    ticket: Short
    queue: ShortStr
    nowait: Bit


@method(50, 31)
class QueuePurgeOk(Method):
    """``queue.purge-ok``."""

    message_count: Long


@method(50, 40)
class QueueDelete(Method):
    """``queue.delete``."""

    ticket: Short
    queue: ShortStr
    if_unused: Bit
    if_empty: Bit
    nowait: Bit


@method(50, 41)
class QueueDeleteOk(Method):
    """``queue.delete-ok``."""

    message_count: Long


@method(50, 50)
class QueueUnbind(Method):
    """``queue.unbind``."""

    ticket: Short
    queue: ShortStr
    exchange: ShortStr
    routing_key: ShortStr
    arguments: Fields


@method(50, 51)
class QueueUnbindOk(Method):
    """``queue.unbind-ok``."""
