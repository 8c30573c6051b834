"""Messages of queues in the form of AMQP 0-9-1, made once for a batch."""

from collections.abc import Sequence

from adapters.amqp.mapping import find_exchange, to_properties
from adapters.amqp.v091.fields import encode_shortstr
from gateway.model import Record
from gateway.queues.shown_forms import Columns


def to_columns(records: Sequence[Record], hidden: tuple[str, ...]) -> Columns:
    """Return origin, properties and body of records.

    The origin is exchange and routing key as short strings; empty for the default exchange, where
    the queue's name is the routing key.
    """
    origins: list[bytes] = []
    properties: list[bytes] = []
    headers = key = None
    origin = made = b""
    for record in records:
        if record.headers != headers or record.key != key:
            headers, key = record.headers, record.key
            origin = _origin(record)
            made = to_properties(headers, hidden)
        origins.append(origin)
        properties.append(made)
    return origins, properties, [record.value or b"" for record in records]


def _origin(record: Record) -> bytes:
    exchange = find_exchange(record.headers)
    if exchange is None:
        return b""
    return encode_shortstr(exchange) + encode_shortstr(record.key or b"")
