"""Arguments of queue.declare: checked and compared as RabbitMQ does, with its texts.

https://www.rabbitmq.com/docs/queues#optional-arguments, and RabbitMQ's ``rabbit_amqqueue``.
"""

from collections.abc import Callable
from typing import Final

from pydantic import ValidationError

from adapters.amqp.retry_arguments import (
    DELIVERY_LIMIT,
    RETRY_MAX,
    RETRY_MIN,
    RETRY_TYPE,
    RETRY_TYPES,
    lacks_delay,
    retry_settings,
)
from adapters.amqp.stream_arguments import parse_span
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import Field, Table, encode_table
from gateway.queues.dead_letter_targets import DEFAULT_EXCHANGE
from gateway.queues.model import Order, QueueSettings

QUEUE_TYPE: Final = "x-queue-type"
CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"
_MS_MAX: Final = 315_360_000_000
_INTEGERS: Final = frozenset("bBsuIilLD")
_FLOATS: Final = frozenset("df")
_PRIORITY_MAX: Final = 255
ARGUMENTS_BYTES_MAX: Final = 16_384  # of a queue, which each of its methods reads

_ANY_TYPE: Final = ("x-queue-type", "x-queue-leader-locator", "x-max-length-bytes")
_QUEUES: Final = (
    *_ANY_TYPE,
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-overflow",
    "x-single-active-consumer",
)
ARGUMENTS: Final[dict[str, frozenset[str]]] = {
    CLASSIC: frozenset(
        (
            *_QUEUES,
            "x-max-priority",
            "x-queue-mode",
            "x-queue-version",
            "x-queue-master-locator",
        )
    ),
    QUORUM: frozenset(
        (
            *_QUEUES,
            "x-dead-letter-strategy",
            "x-consumer-timeout",
            "x-consumer-disconnected-timeout",
            DELIVERY_LIMIT,
            RETRY_TYPE,
            RETRY_MIN,
            RETRY_MAX,
            "x-max-in-memory-length",
            "x-max-in-memory-bytes",
            "x-quorum-initial-group-size",
            "x-member-placement-tag",
        )
    ),
    STREAM: frozenset(
        (
            *_ANY_TYPE,
            "x-max-age",
            "x-stream-max-segment-size-bytes",
            "x-stream-filter-size-bytes",
            "x-initial-cluster-size",
        )
    ),
}
"""Arguments by type of queue; others are kept and not compared."""

NOT_SERVED: Final = frozenset(
    {
        "x-consumer-disconnected-timeout",
    }
)
"""Arguments that promise what a queue does not do: a declaration with one is refused."""

_TYPE_NAMES: Final = {
    "S": "longstr",
    "I": "signedint",
    "i": "unsignedint",
    "l": "long",
    "L": "long",
    "s": "short",
    "u": "unsignedshort",
    "b": "byte",
    "B": "unsignedbyte",
    "t": "bool",
    "d": "double",
    "f": "float",
    "T": "timestamp",
    "D": "decimal",
    "F": "table",
    "A": "array",
    "x": "binary",
    "V": "void",
}


def queue_type(arguments: Table) -> str:
    """Return the type of queue that arguments name. Error: ``AmqpFault`` 406."""
    field = arguments.find(QUEUE_TYPE)
    if field is None:
        return CLASSIC
    if field.value not in ARGUMENTS or not isinstance(field.value, str):
        raise AmqpFault(
            ReplyCode.PRECONDITION_FAILED,
            f"invalid arg '{QUEUE_TYPE}' for queue: {{unknown_queue_type,{shown(field)}}}",
        )
    return field.value


def shown(field: Field) -> str:
    """Return a value as RabbitMQ's texts show it."""
    value = field.value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def type_name(field: Field) -> str:
    """Return the name of a field's type in RabbitMQ's texts."""
    return _TYPE_NAMES[field.kind]


# --- checks


def _integer(field: Field) -> str | None:
    if field.kind in _INTEGERS:
        return None
    return f'"expected integer, got {type_name(field)}"'


def _not_negative(field: Field) -> str | None:
    if wrong := _integer(field):
        return wrong
    return f"{{value_negative,{shown(field)}}}" if _number(field) < 0 else None


def _span(field: Field) -> str | None:
    if wrong := _not_negative(field):
        return wrong
    return f"{{value_too_large,{shown(field)}}}" if _number(field) > _MS_MAX else None


def _positive_span(field: Field) -> str | None:
    return "{value_zero,0}" if field.kind in _INTEGERS and not field.value else _span(field)


def _priority(field: Field) -> str | None:
    if wrong := _not_negative(field):
        return wrong
    if _number(field) > _PRIORITY_MAX:
        return f"{{max_value_exceeded,{shown(field)}}}"
    return "{value_zero,0}" if not field.value else None


def _text(field: Field) -> str | None:
    return None if field.kind == "S" else f"{{unacceptable_type,{type_name(field)}}}"


def _boolean(field: Field) -> str | None:
    return None if field.kind == "t" else f"{{unacceptable_type,{type_name(field)}}}"


def _one_of(word: str, *values: str) -> Callable[[Field], str | None]:
    def check(field: Field) -> str | None:
        return _text(field) or (None if field.value in values else word)

    return check


def _max_age(field: Field) -> str | None:
    if wrong := _text(field):
        return wrong
    return None if parse_span(str(field.value)) else "invalid_max_age"


def _number(field: Field) -> int:
    return int(field.value)  # type: ignore[arg-type]  # an integer's kind is checked before


_CHECKS: Final[dict[str, Callable[[Field], str | None]]] = {
    "x-expires": _positive_span,
    "x-message-ttl": _span,
    "x-dead-letter-exchange": _text,
    "x-dead-letter-routing-key": _text,
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-priority": _priority,
    "x-overflow": _one_of(
        "invalid_overflow", "drop-head", "reject-publish", "reject-publish-dlx"
    ),
    "x-single-active-consumer": _boolean,
    "x-queue-mode": _one_of("invalid_queue_mode", "default", "lazy"),
    "x-queue-version": _integer,
    DELIVERY_LIMIT: _integer,
    RETRY_TYPE: _one_of("invalid_delayed_retry_type", *RETRY_TYPES),
    RETRY_MIN: _span,
    RETRY_MAX: _span,
    "x-consumer-timeout": _positive_span,
    "x-dead-letter-strategy": _one_of("invalid_dlx_strategy", "at-most-once", "at-least-once"),
    "x-max-age": _max_age,
    "x-stream-max-segment-size-bytes": _not_negative,
    "x-stream-filter-size-bytes": _not_negative,
    "x-initial-cluster-size": _not_negative,
}


def check_arguments(arguments: Table, resource: str) -> None:
    """Check the arguments of a new queue. Error: ``AmqpFault`` 406.

    ``resource``: as ``queue 'orders' in vhost '/'``.
    """
    size_bytes = len(encode_table(arguments))
    if size_bytes > ARGUMENTS_BYTES_MAX:
        raise AmqpFault(
            ReplyCode.PRECONDITION_FAILED,
            f"arguments of {size_bytes} bytes for {resource}, at most {ARGUMENTS_BYTES_MAX} are "
            "kept",
        )
    kind = queue_type(arguments)
    known = ARGUMENTS[kind]
    others = frozenset().union(*ARGUMENTS.values()) - known
    for name, field in arguments:
        if name in others:
            raise AmqpFault(
                ReplyCode.PRECONDITION_FAILED,
                f"invalid arg '{name}' for {resource} of queue type rabbit_{kind}_queue",
            )
        check = _CHECKS.get(name)
        if check is not None and (wrong := check(field)) is not None:
            raise _invalid(name, resource, wrong)
    if arguments.find("x-dead-letter-routing-key") and not arguments.find(
        "x-dead-letter-exchange"
    ):
        raise _invalid("x-dead-letter-routing-key", resource, "routing_key_but_no_dlx_defined")


def check_served(arguments: Table, resource: str) -> None:
    """Refuse a new queue with arguments that have no effect here. Error: ``AmqpFault`` 406."""
    if queue_type(arguments) == STREAM:
        return
    for name, _ in arguments:
        if name in NOT_SERVED:
            raise _invalid(name, resource, "not served")
    if lacks_delay(arguments):
        raise _invalid(RETRY_TYPE, resource, f"not served without {RETRY_MIN}")
    for name in ("x-max-length", "x-max-length-bytes"):
        if arguments.value(name) == 0:
            raise _invalid(name, resource, "0 is not served")


def to_settings(arguments: Table, lease_ms: int) -> QueueSettings:
    """Return the settings of a queue with checked arguments.

    Error: ``AmqpFault`` 406 for a value that a setting does not hold: half a message, a name that
    is too long or no UTF-8.
    """
    values: dict[str, object] = {"lease_ms": lease_ms}
    exchange = arguments.value("x-dead-letter-exchange")
    if exchange is not None:
        values["dead_letter_exchange"] = exchange or DEFAULT_EXCHANGE
    if queue_type(arguments) == QUORUM:
        values |= retry_settings(arguments)
    if arguments.find("x-max-priority") is not None:
        values["order"] = Order.PRIORITY
    for name, setting in _SETTINGS.items():
        if (value := arguments.value(name)) is not None:
            values[setting] = value
    try:
        return QueueSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = _ARGUMENT_OF.get(str(first["loc"][0]), "")
        raise _invalid(name, "queue", first["msg"]) from None


_SETTINGS: Final = {
    "x-dead-letter-routing-key": "dead_letter_routing_key",
    "x-expires": "expires_ms",
    "x-max-length": "length_max",
    "x-max-priority": "priority_max",
    "x-consumer-timeout": "lease_ms",
    "x-max-length-bytes": "length_bytes_max",
    "x-message-ttl": "message_ttl_ms",
    "x-overflow": "overflow",
    "x-single-active-consumer": "single_active",
}
_ARGUMENT_OF: Final = {
    "dead_letter_exchange": "x-dead-letter-exchange",
    "delivery_limit": DELIVERY_LIMIT,
    "retry_delay_ms": RETRY_MIN,
    "retry_delay_ms_max": RETRY_MAX,
    **{setting: name for name, setting in _SETTINGS.items()},
}


def _invalid(name: str, resource: str, wrong: str) -> AmqpFault:
    return AmqpFault(
        ReplyCode.PRECONDITION_FAILED, f"invalid arg '{name}' for {resource}: {wrong}"
    )


# --- equivalence


def check_equal_arguments(received: Table, current: Table, resource: str) -> None:
    """Check that a declaration repeats the arguments of a queue. Error: ``AmqpFault`` 406.

    Only arguments of the queue's type count; integers of any width are one type.
    """
    for name in sorted(ARGUMENTS[queue_type(current)]):
        new, old = received.find(name), current.find(name)
        if name == QUEUE_TYPE:
            classic = Field("S", CLASSIC)
            new, old = new or classic, old or classic
        if not _are_equal(new, old):
            raise AmqpFault(
                ReplyCode.PRECONDITION_FAILED,
                f"inequivalent arg '{name}' for {resource}: {_difference(new, old)}",
            )


def _are_equal(one: Field | None, other: Field | None) -> bool:
    if one is None or other is None:
        return one is other
    return _class_of(one) == _class_of(other) and one.value == other.value


def _class_of(field: Field) -> str:
    if field.kind in _INTEGERS:
        return "integer"
    return "float" if field.kind in _FLOATS else field.kind


def _difference(received: Field | None, current: Field | None) -> str:
    if received is None:
        assert current is not None
        return (
            f"received none but current is the value '{shown(current)}' of type "
            f"'{type_name(current)}'"
        )
    if current is None:
        return (
            f"received the value '{shown(received)}' of type '{type_name(received)}' but current "
            "is none"
        )
    return f"received '{shown(received)}' but current is '{shown(current)}'"
