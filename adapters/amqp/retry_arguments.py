"""Arguments of quorum queues for messages that come back: how often, and after which delay.

https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling. Failed deliveries are those of
basic.reject with requeue, and those whose channel or consumer timeout has ended; basic.nack with
requeue is none, as since RabbitMQ 4.3.
"""

from typing import Final

from adapters.amqp.v091.fields import Field, Table

DELIVERY_LIMIT: Final = "x-delivery-limit"
DEFAULT_DELIVERY_LIMIT: Final = 20  # of RabbitMQ since 4.0
RETRY_TYPE: Final = "x-delayed-retry-type"
RETRY_MIN: Final = "x-delayed-retry-min"
RETRY_MAX: Final = "x-delayed-retry-max"
RETRY_TYPES: Final = ("disabled", "failed", "returned", "all")
_NO_LIMIT: Final = -1
_COUNTS: Final = frozenset({"x-delivery-count", "x-acquired-count"})


def retry_settings(arguments: Table) -> dict[str, object]:
    """Return the settings of a quorum queue by the checked arguments."""
    limit = arguments.value(DELIVERY_LIMIT)
    values: dict[str, object] = {
        "delivery_limit": max(limit, _NO_LIMIT)
        if isinstance(limit, int)
        else DEFAULT_DELIVERY_LIMIT
    }
    kind = arguments.value(RETRY_TYPE)
    if kind is not None and kind != "disabled":
        values["retry_delay_on"] = kind
        values["retry_delay_ms"] = arguments.value(RETRY_MIN)
        values["retry_delay_ms_max"] = arguments.value(RETRY_MAX) or 0
    return values


def lacks_delay(arguments: Table) -> bool:
    """Return whether a queue delays what comes back, and does not say for how long."""
    kind = arguments.value(RETRY_TYPE)
    return kind is not None and kind != "disabled" and not arguments.value(RETRY_MIN)


def with_counts(table: Table, acquired_count: int, failed_count: int) -> Table:
    """Return the headers of a message that was delivered before; a publisher's own do not count.

    ``acquired_count``: earlier deliveries; ``failed_count`` of them have failed.
    """
    pairs = [pair for pair in table if pair[0] not in _COUNTS]
    pairs.append(("x-acquired-count", Field("l", acquired_count)))
    if failed_count:
        pairs.append(("x-delivery-count", Field("l", failed_count)))
    return Table(pairs)
