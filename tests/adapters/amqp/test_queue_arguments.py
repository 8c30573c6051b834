"""Arguments of queues: no value gets past the checks into an error of another kind."""

from decimal import Decimal
from typing import Any

import pytest

from adapters.amqp.queue_arguments import (
    ARGUMENTS_BYTES_MAX,
    check_arguments,
    check_served,
    to_settings,
)
from adapters.amqp.v091.errors import AmqpFault, ReplyCode
from adapters.amqp.v091.fields import Field, Table


def settings_of(*pairs: tuple[str, str, Any]) -> object:
    table = Table((name, Field(kind, value)) for name, kind, value in pairs)
    check_arguments(table, "queue 'q' in vhost '/'")
    check_served(table, "queue 'q' in vhost '/'")
    return to_settings(table, 1_000)


@pytest.mark.parametrize(
    "pair",
    [
        ("x-max-length", "D", Decimal("5.5")),
        ("x-max-length", "l", -1),
        ("x-dead-letter-exchange", "S", b"\xff"),
        ("x-dead-letter-exchange", "S", "e" * 256),
        ("x-other", "S", "a" * ARGUMENTS_BYTES_MAX),
    ],
)
def test_a_value_that_no_queue_has_is_refused(pair: tuple[str, str, Any]) -> None:
    with pytest.raises(AmqpFault) as raised:
        settings_of(pair)

    assert raised.value.code is ReplyCode.PRECONDITION_FAILED


def test_a_routing_key_that_no_message_has_is_refused() -> None:
    with pytest.raises(AmqpFault, match="x-dead-letter-routing-key"):
        settings_of(
            ("x-dead-letter-exchange", "S", "dlx"),
            ("x-dead-letter-routing-key", "S", "k" * 256),
        )


def test_a_timeout_that_would_have_no_effect_is_refused() -> None:
    with pytest.raises(AmqpFault, match=r"x-consumer-timeout.*not served"):
        settings_of(("x-queue-type", "S", "quorum"), ("x-consumer-timeout", "l", 60_000))


def test_the_longest_length_is_taken() -> None:
    settings_of(("x-max-length", "l", (1 << 63) - 1))
