"""Rows of exchanges and bindings: made, compared, changed."""

from collections.abc import Mapping

from features.routing.model import (
    ALTERNATE_EXCHANGE,
    Binding,
    Destination,
    Value,
    format_arguments,
    parse_arguments,
)
from gateway.errors import InvalidRequest
from gateway.exchanges.model import BindingRow, ExchangeName, ExchangeRow
from gateway.exchanges.standard import ExchangeExists
from gateway.model import TopicName
from gateway.topics.manager import Topic, TopicManager


def to_binding_row(namespace: str, binding: Binding, topic: Topic | None) -> BindingRow:
    """Return the row of a binding; ``topic`` is its destination, None for an exchange."""
    return BindingRow(
        ExchangeName(namespace, binding.source),
        binding.destination.name,
        None if topic is None else topic.uuid,
        binding.routing_key,
        binding.arguments_text,
    )


def to_binding(row: BindingRow) -> Binding:
    """Return the binding of a row."""
    destination = Destination(row.destination, is_exchange=row.topic_uuid is None)
    return Binding(row.source.name, destination, row.routing_key, row.arguments)


def is_stored(
    namespace: str,
    binding: Binding,
    rows: Mapping[ExchangeName, ExchangeRow],
    topics: TopicManager,
) -> bool:
    """Return whether a binding outlives the process: both of its ends do."""
    source, destination = rows.get(ExchangeName(namespace, binding.source)), binding.destination
    if source is not None and not source.is_durable:
        return False
    if destination.is_exchange:
        row = rows.get(ExchangeName(namespace, destination.name))
        return row is None or row.is_durable
    topic = topics.find(TopicName(namespace, destination.name))
    return topic is None or not topic.is_transient


def check_equal(known: ExchangeRow, row: ExchangeRow) -> None:
    """Check that a declared exchange is the one that is there. Error: ``ExchangeExists``."""
    for field, current, received in (
        ("type", known.type, row.type),
        ("auto_delete", known.auto_delete, row.auto_delete),
        ("internal", known.is_internal, row.is_internal),
        ("durable", known.is_durable, row.is_durable),
        (
            ALTERNATE_EXCHANGE,
            parse_arguments(known.arguments).get(ALTERNATE_EXCHANGE),
            parse_arguments(row.arguments).get(ALTERNATE_EXCHANGE),
        ),
    ):
        if current != received:
            raise ExchangeExists(
                f"inequivalent arg {field!r} for exchange {row.name.name!r}: "
                f"received {received!r} but current is {current!r}"
            )


def altered(
    row: ExchangeRow, alternate: str, *, auto_delete: bool, is_internal: bool
) -> ExchangeRow:
    """Return a row with another alternate exchange, "" for none, and other flags."""
    arguments = parse_arguments(row.arguments)
    arguments.pop(ALTERNATE_EXCHANGE, None)
    if alternate:
        arguments[ALTERNATE_EXCHANGE] = alternate
    return row._replace(
        arguments=format_arguments(arguments), auto_delete=auto_delete, is_internal=is_internal
    )


def arguments_text(arguments: Mapping[str, Value], *, bytes_max: int) -> str:
    """Return the text of arguments. Error: ``InvalidRequest`` when it is too long."""
    try:
        text = format_arguments(arguments)
        is_restored = parse_arguments(text) == dict(arguments)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"arguments: {error}") from error
    if not is_restored:
        raise InvalidRequest("arguments cannot be stored: NaN, or a table that means bytes")
    if len(text) > bytes_max:
        raise InvalidRequest(f"arguments of {len(text)} bytes, at most {bytes_max} are taken")
    return text
