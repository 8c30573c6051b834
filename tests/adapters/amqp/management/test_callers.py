"""Callers of the HTTP API that are up to no good: web pages, and users with few tags."""

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.amqp.management import queues
from adapters.amqp.management.caller import tags_of_anybody
from adapters.amqp.management.views import field_view
from adapters.amqp.v091.fields import Field
from gateway.auth.ports import ANONYMOUS, Operation, Principal
from gateway.queues.model import DEFAULT_GROUP
from tests.support.amqp_management import ManagementClient
from tests.support.amqp_target import AmqpTarget

ADMINISTRATOR = "guest:guest"


@pytest.fixture
def api(secured: AmqpTarget) -> ManagementClient:
    return ManagementClient(secured.management_port, ADMINISTRATOR)


def test_a_web_page_of_another_host_is_refused_with_a_password_too(
    api: ManagementClient,
) -> None:
    """A browser that has logged in sends the password with every page's form."""
    headers = {"Origin": "https://evil.example.com", "Content-Type": "text/plain"}
    assert api.call("POST", "definitions", {}, headers).status == 401
    own = {"Origin": f"http://127.0.0.1:{api.port}"}
    assert api.call("POST", "definitions", {}, own).status == 204


@pytest.mark.parametrize("name", ["default", "%20" * 256])
def test_a_vhost_that_would_be_another_one_is_not_made(
    api: ManagementClient, name: str
) -> None:
    assert api.call("PUT", f"vhosts/{name}", {}).status == 400


@pytest.mark.parametrize("name", ["default", ""])
def test_a_vhost_that_would_be_another_one_is_not_imported(
    api: ManagementClient, name: str
) -> None:
    before = api.get("vhosts?columns=name")
    assert api.call("POST", "definitions", {"vhosts": [{"name": name}]}).status == 400
    assert api.get("vhosts?columns=name") == before


def test_a_body_has_no_numbers_that_json_lacks(api: ManagementClient) -> None:
    for text in (b'{"value": NaN}', b'{"value": [-Infinity]}'):
        assert api.call("PUT", "global-parameters/nan", text).status == 400


def test_what_a_client_sends_is_shown_as_json() -> None:
    """Clients may send any double in tables: connection.start-ok needs no permission."""
    shown = [field_view(Field("d", value)) for value in (math.nan, -math.inf, 1.5)]
    assert shown == ["nan", "-inf", 1.5]


def test_a_filter_and_a_pattern_have_bounds(api: ManagementClient) -> None:
    text = "a" * 3_000
    assert api.call("GET", f"queues?page=1&use_regex=true&name={text}").status == 400
    body = {"pattern": text, "definition": {"max-length": 1}}
    assert api.call("PUT", "policies/%2F/long", body).status == 400


@pytest.mark.parametrize(
    ("allowed", "tag"),
    [
        ({Operation.ALTER, Operation.DESCRIBE}, "administrator"),
        ({Operation.DESCRIBE}, "monitoring"),
        (set(), "management"),
    ],
)
def test_without_a_login_the_rules_for_the_cluster_hold(
    allowed: set[Operation], tag: str
) -> None:
    def allows(_principal: Principal, operation: Operation, *_resource: object) -> bool:
        return operation in allowed

    node: Any = SimpleNamespace(
        kernel=SimpleNamespace(authorizer=SimpleNamespace(allows=allows))
    )
    assert tags_of_anybody(node, Principal(ANONYMOUS, "amqp", "10.0.0.1")) == {tag}


def test_a_large_body_is_refused_where_none_is_due(api: ManagementClient) -> None:
    """JSON is many times larger in memory than as text, and is parsed in one turn."""
    body = b'{"arguments": {"x": [' + b"[]," * 100_000 + b"[]]}}"
    answer = api.call("PUT", "queues/%2F/large", body)
    assert answer.status == 400
    assert "size limit" in answer.body["reason"]


async def test_queues_are_counted_in_short_turns() -> None:
    """An overview of many queues leaves other clients their turn."""
    queue = SimpleNamespace(
        group=DEFAULT_GROUP,
        topic=SimpleNamespace(is_internal=False),
        counts=lambda: SimpleNamespace(ready=2, delayed=1, in_flight=4),
        consumers=[None],
    )
    found = SimpleNamespace(queues=lambda _namespace, is_sorted: [queue] * (600 + is_sorted))
    call: Any = SimpleNamespace(node=SimpleNamespace(kernel=SimpleNamespace(queues=found)))
    turn_count = 0

    async def count() -> None:
        nonlocal turn_count
        while True:
            turn_count += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    totals = await queues.totals_of(call, "a", "b")
    counting.cancel()

    assert totals == (1_200, 1_200, 3_600, 4_800)
    assert turn_count >= 6


def test_a_policymaker_needs_a_permission_in_the_vhost(
    secured: AmqpTarget, api: ManagementClient
) -> None:
    """A policy can drop the messages of every queue of a vhost."""
    policy = {"pattern": "", "definition": {"max-length": 1}, "apply-to": "queues"}
    api.put("users/maker", {"password": "pw", "tags": "policymaker"})
    maker = ManagementClient(secured.management_port, "maker:pw")

    assert maker.get("vhosts") == maker.get("queues") == []
    assert maker.call("PUT", "policies/%2Fstaging/drop", policy).status == 401

    api.put("permissions/%2Fstaging/maker", {"configure": "", "write": "", "read": ""})
    assert [one["name"] for one in maker.get("vhosts")] == ["/staging"]
    assert maker.call("PUT", "policies/shop/drop", policy).status == 401
    maker.put("policies/%2Fstaging/drop", policy)
    api.delete("policies/%2Fstaging/drop")
    api.delete("users/maker")
