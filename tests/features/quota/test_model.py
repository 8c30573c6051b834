"""Checks of entities and limits, as Kafka's AlterClientQuotas has them."""

import math

import pytest

from features.quota.model import DEFAULT, Entity, QuotaKey, check_entity, check_limit
from gateway.errors import InvalidRequest


@pytest.mark.parametrize(
    "entity",
    [
        Entity(),
        Entity(user="ann", ip="10.0.0.1"),
        Entity(client_id=DEFAULT, ip=DEFAULT),
        Entity(user=""),
        Entity(client_id="x" * 256),
        Entity(ip="10.0.0"),
    ],
)
def test_an_entity_that_makes_no_sense_is_refused(entity: Entity) -> None:
    with pytest.raises(InvalidRequest):
        check_entity(entity)


def test_an_address_is_kept_in_its_usual_form() -> None:
    assert check_entity(Entity(ip="2001:DB8::0:1")) == Entity(ip="2001:db8::1")


@pytest.mark.parametrize(
    ("entity", "name", "value"),
    [
        (Entity("ann"), "producer_byte_rate", 0.0),
        (Entity("ann"), "producer_byte_rate", 1.5),
        (Entity("ann"), "request_percentage", math.nan),
        (Entity("ann"), "request_percentage", math.inf),
        (Entity("ann"), "consumer_byte_rate", 1e30),
        (Entity("ann"), "connection_creation_rate", 5.0),
        (Entity(ip=DEFAULT), "producer_byte_rate", 5.0),
        (Entity("ann"), "retention.ms", 5.0),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(
    entity: Entity, name: str, value: float
) -> None:
    with pytest.raises(InvalidRequest):
        check_limit(entity, name, value)


def test_a_limit_has_its_key() -> None:
    assert check_limit(Entity("ann"), "request_percentage", 12.5) is (
        QuotaKey.REQUEST_PERCENTAGE
    )
