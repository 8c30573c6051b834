"""One module for each class of methods; the tables have the function of each method."""

from typing import Final

from adapters.amqp.v091.channels import Handler
from adapters.amqp.v091.connection import ConnectionHandler
from adapters.amqp.v091.handlers import basic, channel, confirm, connection, exchange, queue, tx
from adapters.amqp.v091.methods import basic as basic_methods
from adapters.amqp.v091.methods import channel as channel_methods
from adapters.amqp.v091.methods import confirm as confirm_methods
from adapters.amqp.v091.methods import connection as connection_methods
from adapters.amqp.v091.methods import exchange as exchange_methods
from adapters.amqp.v091.methods import queue as queue_methods
from adapters.amqp.v091.methods import tx as tx_methods
from adapters.amqp.v091.methods.model import Method

CONNECTION_HANDLERS: Final[dict[type[Method], ConnectionHandler]] = {
    connection_methods.ConnectionStartOk: connection.start_ok,
    connection_methods.ConnectionSecureOk: connection.secure_ok,
    connection_methods.ConnectionTuneOk: connection.tune_ok,
    connection_methods.ConnectionOpen: connection.open_,
    connection_methods.ConnectionClose: connection.close,
    connection_methods.ConnectionCloseOk: connection.close_ok,
    connection_methods.ConnectionUpdateSecret: connection.update_secret,
}

HANDLERS: Final[dict[type[Method], Handler]] = {
    channel_methods.ChannelOpen: channel.open_,
    channel_methods.ChannelClose: channel.close,
    channel_methods.ChannelCloseOk: channel.close_ok,
    channel_methods.ChannelFlow: channel.flow,
    channel_methods.AccessRequest: channel.access_request,
    exchange_methods.ExchangeDeclare: exchange.declare,
    exchange_methods.ExchangeDelete: exchange.delete,
    exchange_methods.ExchangeBind: exchange.bind,
    exchange_methods.ExchangeUnbind: exchange.unbind,
    queue_methods.QueueDeclare: queue.declare,
    queue_methods.QueueBind: queue.bind,
    queue_methods.QueueUnbind: queue.unbind,
    queue_methods.QueuePurge: queue.purge,
    queue_methods.QueueDelete: queue.delete,
    basic_methods.BasicQos: basic.qos,
    basic_methods.BasicConsume: basic.consume,
    basic_methods.BasicCancel: basic.cancel,
    basic_methods.BasicCancelOk: basic.cancel_ok,
    basic_methods.BasicGet: basic.get,
    basic_methods.BasicAck: basic.ack,
    basic_methods.BasicNack: basic.nack,
    basic_methods.BasicReject: basic.reject,
    basic_methods.BasicRecover: basic.recover,
    basic_methods.BasicRecoverAsync: basic.recover_async,
    confirm_methods.ConfirmSelect: confirm.select,
    tx_methods.TxSelect: tx.select,
    tx_methods.TxCommit: tx.commit,
    tx_methods.TxRollback: tx.rollback,
}
