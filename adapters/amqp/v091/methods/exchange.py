"""Methods of the class exchange (40)."""

from adapters.amqp.v091.methods.model import (
    Bit,
    Fields,
    Method,
    Short,
    ShortStr,
    method,
)


@method(40, 10)
class ExchangeDeclare(Method):
    """``exchange.declare``."""

    ticket: Short
    exchange: ShortStr
    type: ShortStr
    passive: Bit
    durable: Bit
    auto_delete: Bit
    internal: Bit
    nowait: Bit
    arguments: Fields


@method(40, 11)
class ExchangeDeclareOk(Method):
    """``exchange.declare-ok``."""


@method(40, 20)
class ExchangeDelete(Method):
    """``exchange.delete``."""

    ticket: Short
    exchange: ShortStr
    if_unused: Bit
    nowait: Bit


@method(40, 21)
class ExchangeDeleteOk(Method):
    """``exchange.delete-ok``."""


@method(40, 30)
class ExchangeBind(Method):
    """``exchange.bind``."""

    ticket: Short
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr
    nowait: Bit
    arguments: Fields


@method(40, 31)
class ExchangeBindOk(Method):
    """``exchange.bind-ok``."""


@method(40, 40)
class ExchangeUnbind(Method):
    """``exchange.unbind``."""

    ticket: Short
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr
    nowait: Bit
    arguments: Fields


@method(40, 51)
class ExchangeUnbindOk(Method):
    """``exchange.unbind-ok``."""
