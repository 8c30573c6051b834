"""Exchanges, bindings and publishing over the admin endpoint, in front of a real kernel."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.admin_client import Refused
from gateway.model import TopicName
from gateway.records.codec import decode_batch
from tests.gateway.admin.kernel_with_admin import Setup, running_admin


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    async with running_admin(tmp_path) as found:
        await found.kernel.topics.create(TopicName("default", "errors"), partitions=1)
        yield found


async def ask(setup: Setup, method: str, *path: str, **options: Any) -> Any:
    """Send a request beside the loop that answers it."""
    return await asyncio.to_thread(partial(setup.client.send, method, *path, **options))


async def refused(setup: Setup, method: str, *path: str, **options: Any) -> str:
    with pytest.raises(Refused) as caught:
        await ask(setup, method, *path, **options)
    return str(caught.value)


async def bind(setup: Setup, source: str, **fields: Any) -> Any:
    return await ask(setup, "POST", "bindings", body={"source": source, **fields})


def records(setup: Setup, topic: str) -> list[Any]:
    kernel = setup.kernel
    partition = kernel.broker.partition(kernel.topics.get(TopicName("default", topic)), 0)
    batches = kernel.broker.read(partition, 0, bytes_max=1 << 20)
    return [record for batch in batches or () for record in decode_batch(batch)]


async def test_the_way_of_an_exchange(setup: Setup) -> None:
    body = {"name": "logs", "type": "topic", "arguments": {"alternate-exchange": "amq.fanout"}}
    made = await ask(setup, "POST", "exchanges", body=body)
    assert made == {
        "namespace": "default",
        "name": "logs",
        "type": "topic",
        "arguments": {"alternate-exchange": "amq.fanout"},
        "auto_delete": False,
        "internal": False,
        "durable": True,
        "bindings": 0,
    }
    assert await ask(setup, "POST", "exchanges", body=body) == made
    await bind(setup, "logs", topic="errors", routing_key="*.error")
    assert (await ask(setup, "GET", "exchanges", "logs"))["bindings"] == 1
    listed = (await ask(setup, "GET", "exchanges"))["exchanges"]
    assert [one["name"] for one in listed] == [
        "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic", "logs",
    ]  # fmt: skip
    await ask(setup, "DELETE", "exchanges", "logs")
    assert "ExchangeNotFound" in await refused(setup, "GET", "exchanges", "logs")
    assert (await ask(setup, "GET", "bindings")) == {"bindings": []}


async def test_a_binding_is_found_by_all_its_fields(setup: Setup) -> None:
    await bind(setup, "amq.headers", topic="errors", arguments={"x-match": "any", "n": 1})
    await bind(setup, "amq.headers", exchange="amq.fanout")

    found = (await ask(setup, "GET", "bindings", query={"source": "amq.headers"}))["bindings"]
    assert found == [
        {
            "source": "amq.headers",
            "topic": "errors",
            "routing_key": "",
            "arguments": {"n": 1, "x-match": "any"},
        },
        {"source": "amq.headers", "exchange": "amq.fanout", "routing_key": "", "arguments": {}},
    ]
    query = {"source": "amq.headers", "topic": "errors"}
    assert "BindingNotFound" in await refused(setup, "DELETE", "bindings", query=query)
    query["arguments"] = '{"x-match": "any", "n": 1}'
    await ask(setup, "DELETE", "bindings", query=query)
    assert len((await ask(setup, "GET", "bindings"))["bindings"]) == 1


async def test_the_route_of_a_message_is_shown_without_a_message(setup: Setup) -> None:
    await bind(setup, "amq.headers", topic="errors", arguments={"level": 5})

    async def route(exchange: str, **body: Any) -> Any:
        return (await ask(setup, "POST", "exchanges", exchange, "route", body=body))["topics"]

    assert await route("amq.headers", headers={"level": 5}) == ["errors"]
    assert await route("amq.headers", headers={"level": "5"}) == []
    assert await route("amq.default", routing_key="errors") == ["errors"]
    assert await route("amq.default", routing_key="missing") == []
    assert records(setup, "errors") == []


async def test_a_route_is_explained(setup: Setup) -> None:
    body = {"name": "logs", "arguments": {"alternate-exchange": "amq.fanout"}}
    await ask(setup, "POST", "exchanges", body=body)
    await bind(setup, "logs", topic="errors", routing_key="error")

    async def explained(key: str, exchange: str = "logs") -> Any:
        body = {"routing_key": key, "explain": True}
        return await ask(setup, "POST", "exchanges", exchange, "route", body=body)

    found = await explained("error")
    assert (found["topics"], found["no_topics"], found["delay_ms"]) == (["errors"], [], 0)
    assert found["steps"] == [
        {
            "exchange": "logs",
            "type": "direct",
            "from": None,
            "is_alternate": False,
            "outcome": "the message goes on to 1 destination",
            "bindings": [
                {
                    "topic": "errors",
                    "routing_key": "error",
                    "arguments": {},
                    "matches": True,
                    "reason": "its key is the routing key",
                }
            ],
            "bindings_left_out": 0,
        }
    ]
    lost = await explained("other")
    assert [step["exchange"] for step in lost["steps"]] == ["logs", "amq.fanout"]
    assert lost["topics"] == []
    missing = await explained("missing", "amq.default")
    assert (missing["topics"], missing["no_topics"]) == ([], ["missing"])


async def test_a_published_message_is_in_the_log_when_it_is_answered(setup: Setup) -> None:
    await bind(setup, "amq.direct", topic="errors", routing_key="k")

    async def publish(**body: Any) -> Any:
        return await ask(setup, "POST", "exchanges", "amq.direct", "publish", body=body)

    headers = {"h": "text", "n": 5}
    found = await publish(routing_key="k", value="first", headers=headers)
    assert found == {"routed": True, "topics": ["errors"]}
    await publish(routing_key="k", value_base64="/w==", key="another")
    assert await publish(routing_key="other", value="x") == {"routed": False, "topics": []}

    first, second = records(setup, "errors")
    assert (first.key, first.value) == (b"k", b"first")
    assert list(first.headers) == [("h", b"text"), ("n", b"5")]
    assert (second.key, second.value) == (b"another", b"\xff")


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (["exchanges"], {"name": "x", "type": "other"}, "InvalidExchange"),
        (["exchanges"], {"name": "amq.x"}, "PolicyViolation"),
        (["bindings"], {"source": "amq.direct"}, "either a topic or an exchange"),
        (["bindings"], {"source": "amq.direct", "topic": "missing"}, "TopicNotFound"),
        (["bindings"], {"source": "amq.default", "topic": "errors"}, "default exchange"),
        (["exchanges", "missing", "publish"], {"value": "x"}, "ExchangeNotFound"),
        (["exchanges", "amq.direct", "publish"], {"value_base64": "!"}, "value_base64"),
        (["exchanges", "amq.direct", "publish"], {"value": "x", "value_base64": ""}, "both"),
        (["exchanges", "amq.direct", "publish"], {"headers": {"dlq.reason": "x"}}, "reserved"),
        (["exchanges", "amq.direct", "route"], {"routing_key": "x" * 256}, "255 bytes"),
    ],
)
async def test_what_is_not_valid_is_refused(
    setup: Setup, path: list[str], body: dict[str, Any], words: str
) -> None:
    assert words in await refused(setup, "POST", *path, body=body)


async def test_a_different_exchange_of_the_name_is_a_conflict(setup: Setup) -> None:
    await ask(setup, "POST", "exchanges", body={"name": "logs", "type": "topic"})

    text = await refused(setup, "POST", "exchanges", body={"name": "logs", "type": "fanout"})
    assert "ExchangeExists" in text
    await bind(setup, "logs", topic="errors", routing_key="#")
    text = await refused(setup, "DELETE", "exchanges", "logs", query={"if_unused": "true"})
    assert "ExchangeInUse" in text


@pytest.mark.parametrize("arguments", ["{", "[1]", "5", '{"a":' * 900 + "1" + "}" * 900])
async def test_arguments_of_a_query_are_a_json_object(setup: Setup, arguments: str) -> None:
    query = {"source": "amq.direct", "topic": "errors", "arguments": arguments}

    text = await refused(setup, "DELETE", "bindings", query=query)

    assert text.startswith(("InvalidRequest: arguments", "BindingNotFound"))
