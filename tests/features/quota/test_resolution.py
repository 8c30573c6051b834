"""Choice of the quota that counts, in Kafka's order, and the clients that share it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.quota.model import DEFAULT, Entity, Part, QuotaKey
from features.quota.resolution import Resolved, resolve, resolve_ip

RATE = QuotaKey.PRODUCER_BYTE_RATE
ORDER: list[tuple[Entity, tuple[str | None, str | None]]] = [
    (Entity("ann", "app"), ("ann", "app")),
    (Entity("ann", DEFAULT), ("ann", "app")),
    (Entity("ann"), ("ann", None)),
    (Entity(DEFAULT, "app"), ("ann", "app")),
    (Entity(DEFAULT, DEFAULT), ("ann", "app")),
    (Entity(DEFAULT), ("ann", None)),
    (Entity(None, "app"), (None, "app")),
    (Entity(None, DEFAULT), (None, "app")),
]


@given(present=st.sets(st.sampled_from(range(len(ORDER)))))
def test_the_first_entity_of_the_order_counts(present: set[int]) -> None:
    quotas = {ORDER[at][0]: {RATE: 10.0 + at} for at in present}
    found = resolve(quotas, RATE, "ann", "app")
    if not present:
        assert found is None
        return
    first = min(present)
    assert found == Resolved(10.0 + first, *ORDER[first][1])


def test_each_key_is_looked_up_by_itself() -> None:
    quotas = {
        Entity("ann", "app"): {QuotaKey.CONSUMER_BYTE_RATE: 1.0},
        Entity("ann"): {RATE: 2.0},
    }
    assert resolve(quotas, RATE, "ann", "app") == Resolved(2.0, "ann", None)


@pytest.mark.parametrize(
    ("parts", "limit"),
    [(("10.0.0.1", DEFAULT), 5.0), ((DEFAULT,), 6.0), ((), None), (("10.0.0.2",), None)],
)
def test_an_address_has_its_own_limit_or_the_default(
    parts: tuple[Part, ...], limit: float | None
) -> None:
    values = {"10.0.0.1": 5.0, DEFAULT: 6.0, "10.0.0.2": 7.0}
    quotas = {
        Entity(ip=part): {QuotaKey.CONNECTION_CREATION_RATE: values[part]}
        for part in parts
        if part is not None
    }
    assert resolve_ip(quotas, "10.0.0.1") == limit
