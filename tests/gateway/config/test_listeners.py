"""Two listeners that a system would not let have their addresses at once are refused."""

import pytest

from gateway.config.base import InvalidSettings
from gateway.config.loader import load_settings
from gateway.config.settings import Settings


def loaded(admin: str, kafka: str) -> Settings:
    return load_settings(assignments=[f"admin.bind={admin}", f"adapters.kafka.bind={kafka}"])


@pytest.mark.parametrize(
    ("admin", "kafka"),
    [
        ("127.0.0.1:7000", "127.0.0.1:7000"),
        ("0.0.0.0:7000", "127.0.0.1:7000"),
        ("127.0.0.1:7000", "0.0.0.0:7000"),
        ("localhost:7000", "127.0.0.1:7000"),
        ("[::]:7000", "[::1]:7000"),
    ],
)
def test_what_collides_is_refused_with_both_keys(admin: str, kafka: str) -> None:
    with pytest.raises(InvalidSettings, match=r"adapters\.kafka\.bind: .* by admin\.bind"):
        loaded(admin, kafka)


@pytest.mark.parametrize(
    ("admin", "kafka"),
    [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("127.0.0.1:7000", "127.0.0.1:7001"),
        ("127.0.0.1:7000", "127.0.0.2:7000"),
        ("[::]:7000", "127.0.0.1:7000"),
    ],
)
def test_what_a_system_allows_is_allowed(admin: str, kafka: str) -> None:
    assert loaded(admin, kafka).admin.bind == admin


def test_a_second_listener_of_an_adapter_is_looked_at() -> None:
    with pytest.raises(
        InvalidSettings, match=r"adapters\.mqtt\.tls\.bind: .*:1883 is taken by"
    ):
        load_settings(assignments=["adapters.mqtt.tls={bind='127.0.0.1:1883'}"])


def test_listeners_in_a_list_are_looked_at_and_what_they_replace_is_not() -> None:
    listeners = "[{name='a', bind='127.0.0.1:9092'}, {name='b', bind='127.0.0.1:1883'}]"
    with pytest.raises(InvalidSettings) as raised:
        load_settings(assignments=[f"adapters.kafka.listeners={listeners}"])
    (line,) = str(raised.value).splitlines()
    assert "adapters.kafka.listeners[1].bind" in line
    assert "adapters.mqtt.bind" in line
