"""Messages: publishing one, and getting some of a queue, for people who look at it.

What is got in a call is bounded: ``GOT_MAX`` messages, ``GOT_BYTES_MAX`` of their bodies; and so
is the JSON of a message that is published, by ``PUBLISH_BODY_BYTES_MAX``.
"""

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from adapters.amqp.management.body_fields import int_of, need, table_of, text_of
from adapters.amqp.management.call import Call
from adapters.amqp.management.errors import ApiFault, bad_request
from adapters.amqp.management.listing import NO_CACHE
from adapters.amqp.management.method_channel import MethodChannel
from adapters.amqp.management.queues import find_queue
from adapters.amqp.management.views import Json, table_view
from adapters.amqp.mapping import find_exchange, to_properties
from adapters.amqp.queues import name_of
from adapters.amqp.v091.errors import AmqpFault
from adapters.amqp.v091.fields import Table
from adapters.amqp.v091.properties import Properties, decode_properties
from gateway.auth.ports import Operation
from gateway.errors import StorageUnavailable
from gateway.exchanges.standard import named
from gateway.futures import set_result_if_pending
from gateway.queues.manager import Queue
from gateway.queues.model import Delivery, Outcome

PUBLISH_BODY_BYTES_MAX: Final = 2_097_152  # its JSON is parsed in one turn of the loop
PUBLISH_OTHER_BYTES_MAX: Final = 262_144  # of it, outside strings
GOT_MAX: Final = 1_000
GOT_BYTES_MAX: Final = 16_777_216
LEASE_MS: Final = 60_000
_ACK_MODES: Final = {
    "ack_requeue_true": Outcome.RELEASE,
    "ack_requeue_false": Outcome.ACK,
    "reject_requeue_true": Outcome.RELEASE,
    "reject_requeue_false": Outcome.REJECT,
}
_NUMBERS: Final = {"delivery_mode": 255, "priority": 255, "timestamp": (1 << 64) - 1}


async def publish(call: Call) -> Response:
    """Publish a message to an exchange; say whether it was routed."""
    name = named(call.parts["exchange"])  # a missing one is refused by the publish itself
    body = await call.body(outside_strings_max=PUBLISH_OTHER_BYTES_MAX)
    need(body, "routing_key", "properties", "payload", "payload_encoding")
    properties = _properties(body.get("properties") or {})
    routing_key = text_of(body, "routing_key")
    payload = _payload(text_of(body, "payload"), text_of(body, "payload_encoding"))
    bytes_max = call.node.config.message_bytes_max
    if len(payload) > bytes_max:
        raise bad_request(f"message size {len(payload)} is larger than max size {bytes_max}")
    if len(routing_key.encode()) > 255:  # noqa: PLR2004 - of a short string
        raise bad_request("routing_key is longer than 255 bytes")
    channel = MethodChannel(call)
    try:
        is_routed, is_taken = await channel.publish(name, routing_key, properties, payload)
    except AmqpFault as fault:
        raise bad_request(f"{fault.code.value} {fault.reply_text}") from fault
    if not is_taken:
        raise ApiFault(HTTPStatus.BAD_REQUEST, "bad_request", "a queue has refused the message")
    return JSONResponse({"routed": is_routed}, headers=NO_CACHE)


def _payload(text: str, encoding: str) -> bytes:
    if encoding == "string":
        return text.encode()
    if encoding != "base64":
        raise bad_request(f"{{unsupported_encoding,<<{encoding[:80]!r}>>}}")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request("payload: not base64") from error


def _properties(found: Any) -> Properties:  # noqa: ANN401 - JSON
    if not isinstance(found, Mapping):
        if found == []:
            return Properties()
        raise bad_request("properties: not an object")
    values: dict[str, str | int | Table] = {}
    for name, value in found.items():
        if name not in Properties._fields or value is None:
            continue
        if name == "headers":
            values[name] = table_of({"headers": value}, "headers")
        elif name in _NUMBERS:
            number = int_of({name: value}, name, 0)
            if not 0 <= number <= _NUMBERS[name]:
                raise bad_request(f"{name}: {number} is out of range")
            values[name] = number
        else:
            values[name] = text_of({name: value}, name)
    return Properties(**values)  # type: ignore[arg-type]  # each by its own type


# --- getting


async def get(call: Call) -> Response:
    """Return messages of a queue, and put them back, or not, as ``ackmode`` says."""
    queue = find_queue(call)
    body = await call.body()
    need(body, "count", "ackmode", "encoding")
    count = int_of(body, "count", 1)
    mode = _ACK_MODES.get(text_of(body, "ackmode"))
    if mode is None:
        raise bad_request("Unsupported ackmode")
    encoding = text_of(body, "encoding")
    if encoding not in {"auto", "base64"}:
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    truncate = int_of(body, "truncate", GOT_BYTES_MAX)
    channel = MethodChannel(call)
    channel.access.check_queue(Operation.READ, call.parts["queue"])
    call.node.check_owner(channel, queue, call.parts["queue"])
    queue.check_here()
    taken = await _take(queue, min(max(count, 0), GOT_MAX))
    left = queue.counts().ready + len(taken)
    views = [
        _view(call, queue, one, left - number - 1, encoding, truncate)
        for number, one in enumerate(taken)
    ]
    await _settle(queue, taken, mode)
    return JSONResponse(views, headers=NO_CACHE)


async def _take(queue: Queue, count: int) -> list[Delivery]:
    """Return messages that are ready now, in flight for a minute."""
    loop = asyncio.get_running_loop()
    taken: list[Delivery] = []
    size_bytes = 0
    while len(taken) < count and size_bytes < GOT_BYTES_MAX:
        got: asyncio.Future[list[Delivery]] = loop.create_future()
        queue.receive(
            count - len(taken),
            bytes_max=GOT_BYTES_MAX - size_bytes,
            on_done=partial(set_result_if_pending, got),
            lease_ms=LEASE_MS,
            on_failed=partial(set_result_if_pending, got, []),
        )
        more = await got
        if not more:
            break
        taken += more
        size_bytes += sum(len(one.record.value or b"") for one in more)
    return taken


async def _settle(queue: Queue, taken: Sequence[Delivery], outcome: Outcome) -> None:
    if not taken:
        return
    done: asyncio.Future[StorageUnavailable | None] = asyncio.get_running_loop().create_future()
    queue.settle(
        [(one.delivery_id, outcome) for one in taken],
        lambda _results, error: set_result_if_pending(done, error),
    )
    error = await done
    if error is not None:
        raise error


def _view(  # noqa: PLR0917 - a message, and how it is shown
    call: Call, queue: Queue, one: Delivery, left: int, encoding: str, truncate: int
) -> Json:
    record = one.record
    exchange = find_exchange(record.headers)
    routing_key = (record.key or b"").decode(errors="replace")
    if exchange is None:
        exchange, routing_key = "", name_of(queue)
    raw = to_properties(record.headers, call.node.reserved_prefixes)
    value = record.value or b""
    payload, shown = _shown(value[: max(truncate, 0)], encoding)
    return {
        "payload_bytes": len(value),
        "redelivered": one.attempt > 1,
        "exchange": exchange,
        "routing_key": routing_key,
        "message_count": left,
        "properties": properties_view(decode_properties(raw)) or [],
        "payload": payload,
        "payload_encoding": shown,
    }


def _shown(value: bytes, encoding: str) -> tuple[str, str]:
    if encoding == "auto":
        try:
            return value.decode(), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(value).decode("ascii"), "base64"


def properties_view(properties: Properties) -> Json:
    """Return the properties that are set."""
    return {
        name: table_view(value) if isinstance(value, Table) else value
        for name, value in properties._asdict().items()
        if value is not None
    }
