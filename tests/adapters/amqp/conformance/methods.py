"""Methods with their usual fields, for tests."""

from adapters.amqp.v091.fields import EMPTY, Field, Table
from adapters.amqp.v091.methods.basic import BasicConsume, BasicGet
from adapters.amqp.v091.methods.exchange import ExchangeDeclare
from adapters.amqp.v091.methods.queue import QueueBind, QueueDeclare, QueueDelete


def declare(name: str, arguments: Table = EMPTY, **flags: bool) -> QueueDeclare:
    """Return the declaration of a durable queue."""
    values = dict.fromkeys(("passive", "durable", "exclusive", "auto_delete", "nowait"), False)
    return QueueDeclare(0, name, arguments=arguments, **{**values, "durable": True, **flags})


def delete(name: str) -> QueueDelete:
    """Return the deletion of a queue, whatever is in it."""
    return QueueDelete(0, name, if_unused=False, if_empty=False, nowait=False)


def exchange(
    name: str, kind: str = "direct", arguments: Table = EMPTY, **flags: bool
) -> ExchangeDeclare:
    """Return the declaration of a durable exchange."""
    names = ("passive", "durable", "auto_delete", "internal", "nowait")
    values = dict.fromkeys(names, False)
    return ExchangeDeclare(
        0, name, kind, arguments=arguments, **{**values, "durable": True, **flags}
    )


def bind(queue: str, source: str, key: str = "", arguments: Table = EMPTY) -> QueueBind:
    """Return a binding."""
    return QueueBind(0, queue, source, key, nowait=False, arguments=arguments)


def consume(queue: str, tag: str = "", **flags: bool) -> BasicConsume:
    """Return the start of a consumer."""
    values = dict.fromkeys(("no_local", "no_ack", "exclusive", "nowait"), False)
    return BasicConsume(0, queue, tag, arguments=EMPTY, **{**values, **flags})


def get(queue: str, *, no_ack: bool = False) -> BasicGet:
    """Return a basic.get."""
    return BasicGet(0, queue, no_ack)


def table(name: str, kind: str, value: object) -> Table:
    """Return a table of one field."""
    return Table([(name, Field(kind, value))])  # type: ignore[arg-type]
