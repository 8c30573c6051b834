"""Listeners that a page's policy names: a host that is no name never gets into the header."""

import pytest

from console.endpoints import NO_ENDPOINT, endpoint_for
from gateway.admin_views import BrowserEndpoint


class Listening:
    def browser_endpoint(self) -> BrowserEndpoint | None:
        return BrowserEndpoint("wss", 8083, "/mqtt")


class Silent:
    def browser_endpoint(self) -> BrowserEndpoint | None:
        return None


@pytest.mark.parametrize("authority", ["mq.example.com:9644", "mq.example.com", "10.0.0.1:1"])
def test_the_listener_is_called_by_the_name_of_the_page(authority: str) -> None:
    host = authority.partition(":")[0]
    found = endpoint_for(Listening(), authority)
    assert found == (f"wss://{host}:8083", f"wss://{host}:8083/mqtt")


@pytest.mark.parametrize(
    "authority", ["", "[::1]:9644", "a; script-src *", "a b", "*", "*.example", "a,b", "a\n:1"]
)
def test_what_a_policy_cannot_name_is_left_out(authority: str) -> None:
    assert endpoint_for(Listening(), authority) == NO_ENDPOINT


@pytest.mark.parametrize("adapter", [None, Silent()])
def test_without_a_listener_nothing_is_allowed(adapter: object) -> None:
    assert endpoint_for(adapter, "mq:9644") == NO_ENDPOINT
