"""The class exchange: declaring, deleting, binding exchanges to each other."""

from adapters.amqp.node import exchange_resource
from adapters.amqp.v091.channel import Channel
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.methods.exchange import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
)
from adapters.amqp.v091.publishing import to_values
from features.routing.model import (
    ALTERNATE_EXCHANGE,
    DEFAULT_EXCHANGE,
    Binding,
    Destination,
    ExchangeType,
    InvalidBinding,
    InvalidExchange,
    format_arguments,
)
from gateway.auth.ports import Operation
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import (
    RESERVED,
    BindingNotFound,
    ExchangeExists,
    ExchangeInUse,
    ExchangeNotFound,
)


def _name(channel: Channel, name: str) -> ExchangeName:
    return ExchangeName(channel.connection.namespace, name)


def check_not_default(name: str) -> None:
    """Refuse the default exchange. Error: ``AmqpFault`` 403."""
    if name == DEFAULT_EXCHANGE:
        raise AmqpFault(
            ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange"
        )


def check_exists(channel: Channel, name: str) -> None:
    """Check that an exchange is there. Error: ``AmqpFault`` 404."""
    if channel.connection.node.kernel.exchanges.find(_name(channel, name)) is None:
        text = f"no {exchange_resource(channel.connection, name)}"
        raise AmqpFault(ReplyCode.NOT_FOUND, text)


async def declare(channel: Channel, method: ExchangeDeclare) -> None:
    """Make an exchange, or check that an equal one is there."""
    connection = channel.connection
    name = strip_name(method.exchange)
    check_not_default(name)
    if method.passive:
        check_exists(channel, name)
    else:
        await _declare(channel, method, name)
    if not method.nowait:
        channel.send(ExchangeDeclareOk())
    del connection


async def _declare(channel: Channel, method: ExchangeDeclare, name: str) -> None:
    connection = channel.connection
    exchanges = connection.node.kernel.exchanges
    connection.access.check_exchange(Operation.CREATE, name)
    if method.type not in _TYPES:
        text = f"unknown exchange type '{method.type}'"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text)
    arguments = to_values(method.arguments)
    if isinstance(alternate := arguments.get(ALTERNATE_EXCHANGE), str):
        connection.access.check_exchange(Operation.READ, name)
        connection.access.check_exchange(Operation.WRITE, alternate)
    found = exchanges.find(_name(channel, name))
    if found is not None:
        _check_equal(channel, method, name)
        return
    if name.startswith(RESERVED):
        text = f"exchange name '{name}' contains reserved prefix 'amq.*'"
        raise AmqpFault(ReplyCode.ACCESS_REFUSED, text)
    try:
        await exchanges.declare(
            _name(channel, name),
            method.type,
            arguments,
            auto_delete=method.auto_delete,
            is_internal=method.internal,
        )
    except (ExchangeExists, InvalidExchange) as error:
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, str(error)) from error


_TYPES = frozenset(one.value for one in ExchangeType)


def _check_equal(channel: Channel, method: ExchangeDeclare, name: str) -> None:
    exchanges = channel.connection.node.kernel.exchanges
    found = exchanges.find(_name(channel, name))
    assert found is not None
    row = exchanges.row(_name(channel, name))
    resource = exchange_resource(channel.connection, name)
    pairs = (
        ("type", method.type, found.type.value),
        ("auto_delete", _text(method.auto_delete), _text(row is not None and row.auto_delete)),
        ("internal", _text(method.internal), _text(row is not None and row.is_internal)),
    )
    for field, received, current in pairs:
        if received != current:
            raise AmqpFault(
                ReplyCode.PRECONDITION_FAILED,
                f"inequivalent arg '{field}' for {resource}: received '{received}' but current "
                f"is '{current}'",
            )
    alternate = method.arguments.value(ALTERNATE_EXCHANGE)
    own = found.arguments.get(ALTERNATE_EXCHANGE)  # not what a policy says
    if alternate != own:
        raise AmqpFault(
            ReplyCode.PRECONDITION_FAILED,
            f"inequivalent arg '{ALTERNATE_EXCHANGE}' for {resource}: "
            f"{_alternate(alternate)} but current is {_current(own)}",
        )


def _alternate(received: object) -> str:
    if received is None:
        return "received none"
    return f"received the value '{received}' of type 'longstr'"


def _current(current: object) -> str:
    return "none" if current is None else f"the value '{current}' of type 'longstr'"


def _text(value: bool) -> str:  # noqa: FBT001
    return "true" if value else "false"


async def delete(channel: Channel, method: ExchangeDelete) -> None:
    """Delete an exchange; one that is not there is no fault."""
    connection = channel.connection
    name = strip_name(method.exchange)
    check_not_default(name)
    if name.startswith(RESERVED):
        text = f"deletion of system {exchange_resource(connection, name)} not allowed"
        raise AmqpFault(ReplyCode.ACCESS_REFUSED, text)
    connection.access.check_exchange(Operation.DELETE, name)
    try:
        await connection.node.kernel.exchanges.delete(
            _name(channel, name), if_unused=method.if_unused
        )
    except ExchangeNotFound:
        pass
    except ExchangeInUse:
        text = f"{exchange_resource(connection, name)} in use"
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, text) from None
    if not method.nowait:
        channel.send(ExchangeDeleteOk())


async def bind(channel: Channel, method: ExchangeBind) -> None:
    """Bind an exchange to another one."""
    await change_binding(channel, _binding(channel, method), is_bound=True)
    if not method.nowait:
        channel.send(ExchangeBindOk())


async def unbind(channel: Channel, method: ExchangeUnbind) -> None:
    """Remove a binding; one that is not there is no fault."""
    await change_binding(channel, _binding(channel, method), is_bound=False)
    if not method.nowait:
        channel.send(ExchangeUnbindOk())


def _binding(channel: Channel, method: ExchangeBind | ExchangeUnbind) -> Binding:
    access = channel.connection.access
    for name in (method.destination, method.source):
        check_not_default(name)
    access.check_exchange(Operation.WRITE, method.destination)
    access.check_exchange(Operation.READ, method.source)
    for name in (method.destination, method.source):
        check_exists(channel, name)
    destination = Destination(method.destination, is_exchange=True)
    text = format_arguments(to_values(method.arguments))
    return Binding(method.source, destination, method.routing_key, text)


async def change_binding(channel: Channel, binding: Binding, *, is_bound: bool) -> None:
    """Add or remove a binding. Errors: ``AmqpFault`` 406, those of ``Exchanges``."""
    namespace = channel.connection.namespace
    exchanges = channel.connection.node.kernel.exchanges
    source = exchanges.find(ExchangeName(namespace, binding.source))
    if source is not None and source.matching_type is ExchangeType.TOPIC:
        access = channel.connection.access
        access.check_topic(Operation.READ, binding.source, binding.routing_key)
    try:
        if is_bound:
            await exchanges.bind(namespace, binding)
        else:
            await exchanges.unbind(namespace, binding)
    except BindingNotFound:
        pass
    except InvalidBinding as error:
        raise AmqpFault(ReplyCode.PRECONDITION_FAILED, str(error)) from error


def strip_name(name: str) -> str:
    """Return a declared name without line ends, which RabbitMQ removes too."""
    return name.replace("\r", "").replace("\n", "")
