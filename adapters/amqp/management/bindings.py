"""Bindings: lists, one binding, binding and unbinding.

Those of the default exchange are one for each queue.
"""

from collections.abc import AsyncIterator, Iterable
from http import HTTPStatus
from urllib.parse import quote, unquote_plus

from starlette.responses import Response

from adapters.amqp.management.body_fields import short_text_of, table_of
from adapters.amqp.management.call import Call
from adapters.amqp.management.errors import no_destination, not_found
from adapters.amqp.management.exchanges import exchange_name
from adapters.amqp.management.listing import Item, reply, reply_list, rows_as_items
from adapters.amqp.management.method_channel import MethodChannel
from adapters.amqp.management.queues import find_queue, queues_of
from adapters.amqp.management.turns import in_turns
from adapters.amqp.management.views import (
    Json,
    binding_view,
    default_binding_view,
    destination_name,
    properties_key,
    queue_in,
)
from adapters.amqp.names import to_namespace, to_topic_name, to_vhost
from adapters.amqp.queues import name_of
from adapters.amqp.v091.fields import Table, to_table
from adapters.amqp.v091.handlers import exchange as exchange_methods
from adapters.amqp.v091.handlers import queue as queue_methods
from adapters.amqp.v091.methods.exchange import ExchangeBind, ExchangeUnbind
from adapters.amqp.v091.methods.queue import QueueBind, QueueUnbind
from adapters.amqp.v091.publishing import to_values
from features.routing.model import (
    DEFAULT_EXCHANGE,
    Binding,
    Destination,
    format_arguments,
)
from gateway.exchanges.model import ExchangeName
from gateway.model import TopicName
from gateway.queues.manager import Queue

_QUEUE = "q"
_EXCHANGE = "e"


async def list_all(call: Call) -> Response:
    """Return the bindings of a vhost, or of all that the caller sees."""
    items: list[Item] = []
    for vhost in call.vhosts():
        items += [_default_item(queue) async for queue in queues_of(call.node, vhost)]
        found = call.node.kernel.exchanges.bindings(to_namespace(vhost))
        items += [item async for item in _items(call, vhost, found)]
    return await reply_list(call, items)


async def from_exchange(call: Call) -> Response:
    """Return the bindings that have an exchange as their source."""
    name = exchange_name(call)
    if name == DEFAULT_EXCHANGE:
        items = [_default_item(queue) async for queue in queues_of(call.node, call.vhost)]
    else:
        source = ExchangeName(call.namespace, name)
        found = call.node.kernel.exchanges.bindings_from(source)
        items = [item async for item in _items(call, call.vhost, found)]
    return await reply_list(call, items)


async def to_exchange(call: Call) -> Response:
    """Return the bindings that lead to an exchange."""
    destination = Destination(exchange_name(call), is_exchange=True)
    return await reply_list(call, await _items_to(call, destination))


async def to_queue(call: Call) -> Response:
    """Return the bindings that lead to a queue."""
    queue = find_queue(call)
    found = await _items_to(call, Destination(queue.name.name))
    return await reply_list(call, [_default_item(queue), *found])


def _default_item(queue: Queue) -> Item:
    """Return the binding of a queue to the default exchange."""
    names = (to_vhost(queue.name.namespace), "", name_of(queue))
    return Item(names, lambda: default_binding_view(queue))


async def _items(call: Call, vhost: str, found: Iterable[Binding]) -> AsyncIterator[Item]:
    node = call.node
    namespace = to_namespace(vhost)
    async for one in in_turns(found):
        destination = destination_name(node, namespace, one.destination)
        yield Item(
            (vhost, one.source, destination, one.routing_key),
            lambda one=one: binding_view(node, vhost, one),  # type: ignore[misc]
        )


async def _items_to(call: Call, destination: Destination) -> list[Item]:
    found = call.node.kernel.exchanges.bindings_to(call.namespace, destination)
    return [item async for item in _items(call, call.vhost, found)]


def ends_of(call: Call) -> tuple[str, Destination]:
    """Return the two ends of the path, which are there. Error: ``ApiFault`` 404."""
    source = exchange_name(call, "source")
    if call.parts["kind"] == _EXCHANGE:
        return source, Destination(exchange_name(call, "destination"), is_exchange=True)
    if call.parts["kind"] != _QUEUE:
        raise not_found()
    name = to_topic_name(call.namespace, call.parts["destination"])
    if call.node.kernel.topics.find(name) is None:
        raise no_destination(f"no queue '{call.parts['destination']}' in vhost '{call.vhost}'")
    return source, Destination(name.name)


async def bindings_between(call: Call) -> list[Binding]:
    """Return the bindings between the ends of the path; the default exchange has none."""
    source, destination = ends_of(call)
    found = call.node.kernel.exchanges.bindings_to(call.namespace, destination)
    return [one async for one in in_turns(found) if one.source == source]


async def between(call: Call) -> Response:
    """Return the bindings between an exchange and a destination."""
    return await reply_list(call, rows_as_items(await _rows_between(call), "routing_key"))


async def get(call: Call) -> Response:
    """Return one binding."""
    for row in await _rows_between(call):
        if call.parts["key"] in {row["properties_key"], unquote_plus(row["properties_key"])}:
            return reply(call, row)
    raise not_found()


async def _rows_between(call: Call) -> list[Json]:
    source, destination = ends_of(call)
    if source != DEFAULT_EXCHANGE:
        found = await bindings_between(call)
        return [binding_view(call.node, call.vhost, one) async for one in in_turns(found)]
    queue = queue_in(call.node, TopicName(call.namespace, destination.name))
    if queue is None or destination.is_exchange:
        return []
    return [default_binding_view(queue)]


async def post(call: Call) -> Response:
    """Bind a destination to an exchange; Location names the binding."""
    source, _ = ends_of(call)
    body = await call.body()
    routing_key = short_text_of(body, "routing_key", "")
    arguments = table_of(body, "arguments")
    with call.audit("binding.create", _text(call, routing_key)):
        await _bind(call, source, routing_key, arguments)
    key = properties_key(routing_key, format_arguments(to_values(arguments)))
    location = f"{quote(call.parts['destination'], safe='')}/{quote(key, safe='')}"
    return Response(status_code=HTTPStatus.CREATED, headers={"location": location})


async def delete(call: Call) -> Response:
    """Remove a binding."""
    for one in await bindings_between(call):
        key = properties_key(one.routing_key, one.arguments_text)
        if call.parts["key"] in {key, unquote_plus(key)}:
            with call.audit("binding.delete", _text(call, one.routing_key)):
                await _unbind(call, one)
            return Response(status_code=HTTPStatus.NO_CONTENT)
    if ends_of(call)[0] == DEFAULT_EXCHANGE:
        await _bind(call, DEFAULT_EXCHANGE, "", Table())  # which is refused
    raise not_found()


async def _bind(call: Call, source: str, routing_key: str, arguments: Table) -> None:
    channel = MethodChannel(call)
    name = call.parts["destination"]
    if call.parts["kind"] == _EXCHANGE:
        method = ExchangeBind(0, name, source, routing_key, nowait=False, arguments=arguments)
        await channel.call(exchange_methods.bind, method)
    else:
        channel.last_queue = name
        bound = QueueBind(0, name, source, routing_key, nowait=False, arguments=arguments)
        await channel.call(queue_methods.bind, bound)


async def _unbind(call: Call, binding: Binding) -> None:
    channel = MethodChannel(call)
    name = call.parts["destination"]
    arguments = to_table(binding.arguments)
    if call.parts["kind"] == _EXCHANGE:
        method = ExchangeUnbind(
            0, name, binding.source, binding.routing_key, nowait=False, arguments=arguments
        )
        await channel.call(exchange_methods.unbind, method)
    else:
        await channel.call(
            queue_methods.unbind,
            QueueUnbind(0, name, binding.source, binding.routing_key, arguments),
        )


def _text(call: Call, routing_key: str) -> str:
    return f"{call.parts['source']} to {call.parts['destination']} by {routing_key!r}"
