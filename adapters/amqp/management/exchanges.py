"""Exchanges: lists, one exchange, declaring and deleting."""

from http import HTTPStatus

from starlette.responses import Response

from adapters.amqp.management.body_fields import bool_of, short_text_of, table_of
from adapters.amqp.management.call import Call
from adapters.amqp.management.errors import not_found
from adapters.amqp.management.listing import Item, reply, reply_list
from adapters.amqp.management.method_channel import MethodChannel
from adapters.amqp.management.turns import in_turns
from adapters.amqp.management.views import Json, default_exchange_view, exchange_view
from adapters.amqp.names import to_namespace
from adapters.amqp.v091.handlers import exchange as exchange_methods
from adapters.amqp.v091.methods.exchange import ExchangeDeclare, ExchangeDelete
from features.routing.model import DEFAULT_EXCHANGE
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import named


def exchange_name(call: Call, part: str = "exchange") -> str:
    """Return the exchange of the path, which is there; ``amq.default`` is the default exchange.

    Error: ``ApiFault`` 404.
    """
    name = named(call.parts[part])
    known = call.node.kernel.exchanges.find(ExchangeName(call.namespace, name))
    if name != DEFAULT_EXCHANGE and known is None:
        raise not_found()
    return name


async def list_all(call: Call) -> Response:
    """Return the exchanges of a vhost, or of all that the caller sees."""
    node = call.node
    items: list[Item] = []
    for vhost in call.vhosts():
        items.append(Item((vhost, ""), lambda vhost=vhost: default_exchange_view(vhost)))  # type: ignore[misc]
        items += [
            Item(
                (vhost, one.name),
                lambda vhost=vhost, one=one: exchange_view(node, vhost, one),  # type: ignore[misc]
            )
            async for one in in_turns(node.kernel.exchanges.exchanges(to_namespace(vhost)))
        ]
    return await reply_list(call, items)


async def get(call: Call) -> Response:
    """Return one exchange."""
    return reply(call, _view(call, exchange_name(call)))


def _view(call: Call, name: str) -> Json:
    found = call.node.kernel.exchanges.find(ExchangeName(call.namespace, name))
    if found is None:
        return default_exchange_view(call.vhost)
    return exchange_view(call.node, call.vhost, found)


async def put(call: Call) -> Response:
    """Declare an exchange."""
    body = await call.body()
    name = call.parts["exchange"]
    known = call.node.kernel.exchanges.find(ExchangeName(call.namespace, name))
    method = ExchangeDeclare(
        0,
        named(short_text_of({"name": name}, "name")),
        short_text_of(body, "type", "direct"),
        passive=False,
        durable=bool_of(body, "durable"),
        auto_delete=bool_of(body, "auto_delete"),
        internal=bool_of(body, "internal"),
        nowait=False,
        arguments=table_of(body, "arguments"),
    )
    with call.audit("exchange.declare", name):
        await MethodChannel(call).call(exchange_methods.declare, method)
    return Response(status_code=HTTPStatus.CREATED if known is None else HTTPStatus.NO_CONTENT)


async def delete(call: Call) -> Response:
    """Delete an exchange."""
    name = exchange_name(call)
    if_unused = call.query.get("if-unused") == "true"
    with call.audit("exchange.delete", call.parts["exchange"]):
        method = ExchangeDelete(0, name, if_unused=if_unused, nowait=False)
        await MethodChannel(call).call(exchange_methods.delete, method)
    return Response(status_code=HTTPStatus.NO_CONTENT)
