"""Names and stored rows of exchanges and bindings."""

from typing import NamedTuple
from uuid import UUID


class ExchangeName(NamedTuple):
    """Name of an exchange within a namespace; the default exchange has the empty name."""

    namespace: str
    name: str


class ExchangeRow(NamedTuple):
    """Exchange. ``arguments`` is the text of ``features.routing.model``.

    One that is not durable is not stored: it ends with the process, and so do its bindings.
    """

    name: ExchangeName
    type: str
    arguments: str
    auto_delete: bool
    is_internal: bool
    created_unix_ms: int
    is_durable: bool = True


class BindingRow(NamedTuple):
    """Stored binding. ``topic_uuid`` is that of the destination, None if it is an exchange."""

    source: ExchangeName
    destination: str
    topic_uuid: UUID | None
    routing_key: str
    arguments: str
