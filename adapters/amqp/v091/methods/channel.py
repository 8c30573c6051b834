"""Methods of the classes channel (20) and access (30)."""

from adapters.amqp.v091.methods.model import (
    Bit,
    LongStr,
    Method,
    Short,
    ShortStr,
    method,
)


@method(20, 10)
class ChannelOpen(Method):
    """``channel.open``."""

    reserved_1: ShortStr = ""


@method(20, 11)
class ChannelOpenOk(Method):
    """``channel.open-ok``."""

    reserved_1: LongStr = b""


@method(20, 20)
class ChannelFlow(Method):
    """``channel.flow``."""

    active: Bit


@method(20, 21)
class ChannelFlowOk(Method):
    """``channel.flow-ok``."""

    active: Bit


@method(20, 40)
class ChannelClose(Method):
    """``channel.close``."""

    reply_code: Short
    reply_text: ShortStr
    class_id: Short
    method_id: Short


@method(20, 41)
class ChannelCloseOk(Method):
    """``channel.close-ok``."""


@method(30, 10)
class AccessRequest(Method):
    """``access.request``."""

    realm: ShortStr
    exclusive: Bit
    passive: Bit
    active: Bit
    write: Bit
    read: Bit


@method(30, 11)
class AccessRequestOk(Method):
    """``access.request-ok``."""

    ticket: Short
