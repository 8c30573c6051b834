"""REST for exchanges: ``/v1/exchanges`` and ``/v1/bindings``.

``?namespace=`` names another namespace than the default one. The default exchange is
``amq.default`` in paths. A binding has no name; its ends, its routing key and its arguments
identify it, in a body or as query parameters.
"""

import base64
import binascii
import json
from typing import Any

from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Path

from features.routing.model import (
    Binding,
    Destination,
    Exchange,
    Message,
    Value,
    format_arguments,
)
from gateway.admin.requests import changes, namespace_of, path_text, read_body
from gateway.admin.state import AdminState
from gateway.config.base import FrozenConfig
from gateway.errors import InvalidRequest
from gateway.exchanges.explained import steps_view
from gateway.exchanges.manager import Exchanges
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.publisher import Publication
from gateway.exchanges.standard import ExchangeNotFound, check_text, named, shown
from gateway.futures import await_done
from gateway.kernel import Kernel
from gateway.model import Headers


class NewExchange(FrozenConfig):
    """Body of ``POST /v1/exchanges``."""

    name: str
    type: str = "direct"
    arguments: dict[str, Any] = Field(default_factory=dict)
    auto_delete: bool = False
    internal: bool = False
    durable: bool = True


class BindingText(FrozenConfig):
    """Binding in a body or a query."""

    source: str
    topic: str = ""
    exchange: str = ""
    routing_key: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)


class SentMessage(FrozenConfig):
    """Parts of a message that routing looks at."""

    routing_key: str = ""
    headers: dict[str, Any] = Field(default_factory=dict)
    properties: dict[str, str] = Field(default_factory=dict)


class RoutedMessage(SentMessage):
    """Body of ``POST /v1/exchanges/<name>/route``; ``explain`` asks for the reasons."""

    explain: bool = False


class PublishedMessage(SentMessage):
    """Body of ``POST /v1/exchanges/<name>/publish``: text, or bytes in base64."""

    value: str | None = None
    value_base64: str | None = None
    key: str | None = None


def routes(state: AdminState) -> list[Path]:
    """Return the routes below ``/v1/exchanges`` and ``/v1/bindings``."""
    return [*_exchange_routes(state), *_message_routes(state), *_binding_routes(state)]


def _exchange_routes(state: AdminState) -> list[Path]:
    async def list_or_create(request: Request) -> Response:
        kernel, namespace = state.running(), namespace_of(request)
        if request.method == "POST":
            body = await read_body(request, NewExchange)
            name = ExchangeName(namespace, body.name)
            with changes(kernel, request, "exchange.create", _text(name)):
                made = await kernel.exchanges.declare(
                    name,
                    body.type,
                    body.arguments,
                    auto_delete=body.auto_delete,
                    is_internal=body.internal,
                    is_durable=body.durable,
                )
            return JSONResponse(_view(kernel.exchanges, name), 201 if made else 200)
        found = kernel.exchanges.exchanges(namespace)
        views = [_view(kernel.exchanges, ExchangeName(namespace, one.name)) for one in found]
        return JSONResponse({"exchanges": views})

    async def one(request: Request) -> Response:
        kernel, name = state.running(), _name(request)
        if request.method == "DELETE":
            if_unused = request.query_params.get("if_unused") == "true"
            with changes(kernel, request, "exchange.delete", _text(name)):
                await kernel.exchanges.delete(name, if_unused=if_unused)
            return Response(status_code=204)
        return JSONResponse(_view(kernel.exchanges, name))

    return [
        Path("/exchanges", list_or_create, methods=["GET", "POST"]),
        Path("/exchanges/{exchange}", one, methods=["GET", "DELETE"]),
    ]


def _message_routes(state: AdminState) -> list[Path]:
    async def route(request: Request) -> Response:
        kernel, name = state.running(), _name(request)
        body = await read_body(request, RoutedMessage)
        if body.explain:
            return JSONResponse(_explained(kernel, name, _message(body)))
        found = kernel.exchanges.route(name, _message(body))
        topics = kernel.publisher.plans.targets(name.namespace, found)
        return JSONResponse({"topics": [topic.name.name for topic in topics]})

    async def publish(request: Request) -> Response:
        kernel, name = state.running(), _name(request)
        body = await read_body(request, PublishedMessage)
        publication = Publication(
            _message(body),
            [_value(body)],
            _record_headers(kernel, body.headers),
            None if body.key is None else body.key.encode(),
        )
        topics: list[str] = []
        waits = bool(kernel.exchanges.route(name, publication.routed).delayed)

        def start(on_done: Any) -> None:  # noqa: ANN401 - see ``await_done``
            found = kernel.publisher.publish(name, publication, on_done)
            topics.extend(topic.name.name for topic in found)

        await await_done(start)
        return JSONResponse({"routed": waits or bool(topics), "topics": topics})

    return [
        Path("/exchanges/{exchange}/route", route, methods=["POST"]),
        Path("/exchanges/{exchange}/publish", publish, methods=["POST"]),
    ]


def _binding_routes(state: AdminState) -> list[Path]:
    async def list_or_bind(request: Request) -> Response:
        kernel, namespace = state.running(), namespace_of(request)
        if request.method == "POST":
            binding = _to_binding(await read_body(request, BindingText))
            with changes(kernel, request, "binding.create", _binding_text(binding)):
                made = await kernel.exchanges.bind(namespace, binding)
            return JSONResponse(_binding_view(binding), 201 if made else 200)
        found = kernel.exchanges.bindings(namespace)
        source = request.query_params.get("source")
        views = [_binding_view(one) for one in found if source is None or one.source == source]
        return JSONResponse({"bindings": views})

    async def unbind(request: Request) -> Response:
        kernel, namespace = state.running(), namespace_of(request)
        binding = _to_binding(_asked(request))
        with changes(kernel, request, "binding.delete", _binding_text(binding)):
            await kernel.exchanges.unbind(namespace, binding)
        return Response(status_code=204)

    return [
        Path("/bindings", list_or_bind, methods=["GET", "POST"]),
        Path("/bindings", unbind, methods=["DELETE"]),
    ]


def _name(request: Request) -> ExchangeName:
    return ExchangeName(namespace_of(request), named(path_text(request, "exchange")))


def _text(name: ExchangeName) -> str:
    return f"{name.namespace}/{shown(name.name)}"


def _message(body: SentMessage) -> Message:
    check_text("routing key", body.routing_key)
    return Message([body.routing_key], body.headers, body.properties)


def _explained(kernel: Kernel, name: ExchangeName, message: Message) -> dict[str, Any]:
    """Return the topics of a message, those after a delay included, and the reasons."""
    found = kernel.exchanges.explain(name, message)
    topics = {
        one.name.name for one in kernel.publisher.plans.targets(name.namespace, found.later)
    }
    return {
        "topics": sorted(topics),
        "no_topics": sorted(set(found.later.targets) - topics),
        **steps_view(found, queue_word="topic", name_of=lambda one: one.name),
    }


def _value(body: PublishedMessage) -> bytes | None:
    if body.value_base64 is None:
        return None if body.value is None else body.value.encode()
    if body.value is not None:
        raise InvalidRequest("value and value_base64 are both there")
    try:
        return base64.b64decode(body.value_base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"value_base64: {error}") from error


def _record_headers(kernel: Kernel, headers: dict[str, Value]) -> Headers:
    """Return headers of a record: text as it is, other values as JSON.

    Error: ``InvalidRequest`` for a name that is an adapter's or the kernel's own.
    """
    found: list[tuple[str, bytes | None]] = []
    for name, value in headers.items():
        if name.startswith(kernel.contributions.header_prefixes):
            raise InvalidRequest(f"headers: {name[:100]!r} is reserved")
        text = value if isinstance(value, str) or value is None else json.dumps(value)
        found.append((name, None if text is None else text.encode()))
    return found


def _view(exchanges: Exchanges, name: ExchangeName) -> dict[str, Any]:
    exchange: Exchange | None = exchanges.find(name)
    if exchange is None:
        raise ExchangeNotFound(f"no exchange {shown(name.name)[:255]!r}")
    row = exchanges.row(name)
    return {
        "namespace": name.namespace,
        "name": exchange.name,
        "type": exchange.type.value,
        "arguments": json.loads(format_arguments(exchange.arguments)),
        "auto_delete": row is not None and row.auto_delete,
        "internal": row is not None and row.is_internal,
        "durable": row is None or row.is_durable,
        "bindings": exchanges.binding_count_of(name),
    }


def _asked(request: Request) -> BindingText:
    words: dict[str, Any] = dict(request.query_params)
    words.pop("namespace", None)
    try:
        words["arguments"] = json.loads(words.get("arguments", "{}"))
        found = BindingText.model_validate(words)
        format_arguments(found.arguments)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        raise InvalidRequest(f"{detail['loc'][0]}: {detail['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"arguments: {error}") from error
    return found


def _to_binding(body: BindingText) -> Binding:
    if bool(body.topic) is bool(body.exchange):
        raise InvalidRequest("a binding has either a topic or an exchange as its destination")
    destination = Destination(body.topic or body.exchange, is_exchange=bool(body.exchange))
    arguments = format_arguments(body.arguments)
    return Binding(named(body.source), destination, body.routing_key, arguments)


def _binding_text(binding: Binding) -> str:
    return f"{shown(binding.source)} to {binding.destination.name} by {binding.routing_key!r}"


def _binding_view(binding: Binding) -> dict[str, Any]:
    kind = "exchange" if binding.destination.is_exchange else "topic"
    return {
        "source": binding.source,
        kind: binding.destination.name,
        "routing_key": binding.routing_key,
        "arguments": json.loads(binding.arguments_text),
    }
