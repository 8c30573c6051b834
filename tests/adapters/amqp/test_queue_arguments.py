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
from gateway.queues.model import QueueSettings, RetryOn


def settings_of(*pairs: tuple[str, str, Any]) -> QueueSettings:
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
    name = "x-consumer-disconnected-timeout"
    with pytest.raises(AmqpFault, match=rf"{name}.*not served"):
        settings_of(("x-queue-type", "S", "quorum"), (name, "l", 60_000))


def test_a_timeout_of_consumers_is_the_lease() -> None:
    made = settings_of(("x-queue-type", "S", "quorum"), ("x-consumer-timeout", "l", 60_000))
    assert made.lease_ms == 60_000


def test_a_timeout_longer_than_any_lease_is_refused() -> None:
    with pytest.raises(AmqpFault, match="x-consumer-timeout"):
        settings_of(("x-queue-type", "S", "quorum"), ("x-consumer-timeout", "l", 43_200_001))


QUORUM = ("x-queue-type", "S", "quorum")


@pytest.mark.parametrize(
    ("pairs", "limit"),
    [
        ([], -1),
        ([QUORUM], 20),
        ([QUORUM, ("x-delivery-limit", "I", 0)], 0),
        ([QUORUM, ("x-delivery-limit", "l", 7)], 7),
        ([QUORUM, ("x-delivery-limit", "l", -1)], -1),
    ],
)
def test_a_quorum_queue_has_the_delivery_limit_of_rabbitmq_4(
    pairs: list[tuple[str, str, Any]], limit: int
) -> None:
    assert settings_of(*pairs).delivery_limit == limit


def test_delays_of_what_comes_back() -> None:
    delays = ("x-delayed-retry-min", "l", 100), ("x-delayed-retry-max", "l", 500)
    made = settings_of(QUORUM, ("x-delayed-retry-type", "S", "failed"), *delays)
    assert (made.retry_delay_on, made.retry_delay_ms) == (RetryOn.FAILED, 100)
    assert made.retry_delay_ms_max == 500
    assert settings_of(QUORUM, *delays).retry_delay_ms == 0
    assert settings_of(QUORUM, ("x-delayed-retry-type", "S", "disabled")).retry_delay_ms == 0


def test_a_delay_without_a_time_is_refused() -> None:
    with pytest.raises(AmqpFault, match=r"x-delayed-retry-type.*not served without"):
        settings_of(QUORUM, ("x-delayed-retry-type", "S", "all"))


def test_the_longest_length_is_taken() -> None:
    settings_of(("x-max-length", "l", (1 << 63) - 1))
