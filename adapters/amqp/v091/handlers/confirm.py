"""The class confirm: publisher confirms."""

from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.confirms import Confirms
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.methods.confirm import ConfirmSelect, ConfirmSelectOk


def select(channel: Channel, method: ConfirmSelect) -> None:
    """Number and confirm the channel's publishes from now on."""
    if channel.transaction is not None:
        text = "cannot switch from tx to confirm mode"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
    if channel.confirms is None:
        channel.confirms = Confirms()
    if not method.nowait:
        channel.send(ConfirmSelectOk())
