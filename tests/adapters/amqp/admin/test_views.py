"""Views for the console: exchanges, bindings, queues, connections, channels, routes."""

from collections.abc import AsyncIterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from adapters.amqp.admin.connections import ConnectionNotFound
from adapters.amqp.admin.views import actions, views
from adapters.amqp.node import AmqpNode
from adapters.amqp.v091.connection import AmqpConnection
from adapters.amqp.v091.methods.basic import BasicDeliver, BasicQos
from adapters.amqp.v091.methods.connection import ConnectionClose
from adapters.amqp.v091.methods.queue import QueueDeclareOk
from features.routing.model import Binding, Destination, format_arguments
from gateway.admin_views import ViewQuery
from gateway.config.base import Address
from gateway.errors import GatewayError, InvalidRequest, PolicyViolation
from gateway.exchanges.model import ExchangeName
from gateway.exchanges.standard import ExchangeNotFound
from tests.adapters.amqp.conformance.methods import consume, declare
from tests.adapters.amqp.in_process import AmqpInProcess, Peer, amqp_in_process, published
from tests.support.waiting import until


class Endpoint:
    """The adapter, as its views see it."""

    amqp_address = management_address = Address("127.0.0.1", 1)

    def __init__(self, running: AmqpInProcess) -> None:
        self.running = running

    @property
    def node(self) -> AmqpNode:
        return self.running.node

    def amqp_connections(self) -> list[AmqpConnection]:
        found = self.running.listener.connections
        return [one for one in found if isinstance(one, AmqpConnection)]


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[AmqpInProcess]:
    async with amqp_in_process(tmp_path, vhosts=("/", "shop")) as one:
        yield one


async def ask(one: AmqpInProcess, view: str, **values: str) -> Any:
    found = views(Endpoint(one))[view](ViewQuery(values, 50, 0, ""))
    return await found if isawaitable(found) else found


async def declare_exchange(
    one: AmqpInProcess, name: str, kind: str = "topic", **arguments: str
) -> None:
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    await one.node.kernel.exchanges.declare(ExchangeName("default", name), kind, given)


async def declare_queue(one: AmqpInProcess, *names: str) -> Peer:
    peer = await one.peer().open(1)
    for name in names:
        peer.send(1, declare(name))
        await peer.read(QueueDeclareOk)
    return peer


async def bind(one: AmqpInProcess, source: str, topic: str, key: str, **given: Any) -> None:
    destination = Destination(topic, is_exchange=given.pop("is_exchange", False))
    binding = Binding(source, destination, key, format_arguments(given))
    await one.node.kernel.exchanges.bind("default", binding)


# --- lists


async def test_exchanges_are_listed_with_their_bindings_and_alternates(
    one: AmqpInProcess,
) -> None:
    await declare_exchange(one, "events", alternate_exchange="lost")
    await declare_exchange(one, "audit", "fanout")
    await declare_queue(one, "work")
    await bind(one, "events", "work", "a.*")
    await bind(one, "events", "audit", "#", is_exchange=True)
    found = await ask(one, "exchanges", vhost="/", contains="e")
    by_name = {row["name"]: row for row in found["rows"]}
    events = by_name["events"]
    assert (events["type"], events["alternate"]) == ("topic", "lost")
    assert (events["bindings_from"], events["bindings_to"]) == (2, 0)
    assert by_name["amq.default"]["bindings_from"] == 1
    everywhere = await ask(one, "exchanges", sort="-bindings", limit="1")
    assert (everywhere["rows"][0]["name"], everywhere["total"]) == ("events", 6 + 2 + 6)
    (audit,) = (await ask(one, "exchanges", contains="audit"))["rows"]
    assert (audit["bindings_from"], audit["bindings_to"]) == (0, 1)


async def test_bindings_are_found_from_both_ends(one: AmqpInProcess) -> None:
    await declare_exchange(one, "events")
    await declare_queue(one, "a/b", "work")
    topic = one.node.kernel.queues.queues("default")[0].name.name
    await bind(one, "events", "work", "x")
    await bind(one, "events", topic, "y", n=1)
    await bind(one, "amq.topic", "events", "#", is_exchange=True)

    async def ends(**values: str) -> list[tuple[str, str, str]]:
        rows = (await ask(one, "bindings", **values))["rows"]
        return [(row["source"], row["destination"], row["routing_key"]) for row in rows]

    assert await ends(from_exchange="events", sort="routing_key") == [
        ("events", "work", "x"),
        ("events", "a/b", "y"),
    ]
    assert await ends(to_exchange="events") == [("amq.topic", "events", "#")]
    assert await ends(to_queue="a/b") == [("amq.default", "a/b", "a/b"), ("events", "a/b", "y")]
    assert ("amq.default", "work", "work") in await ends(from_exchange="amq.default")


async def test_queues_are_listed_with_counts(one: AmqpInProcess) -> None:
    peer = await declare_queue(one, "a/b", "work")
    await bind(one, "amq.direct", "work", "k")
    peer.send_bytes(published(1, "work", b"1", b"2"))
    await until(lambda: one.ready_count("work") == 2)
    found = await ask(one, "queues", sort="-ready")
    assert [(row["name"], row["ready"], row["bindings"]) for row in found["rows"]] == [
        ("work", 2, 1),
        ("a/b", 0, 0),
    ]
    assert found["rows"][1]["topic"].startswith("amqp-a-b-")


@pytest.mark.parametrize(
    ("view", "values", "error"),
    [
        ("exchanges", {"vhost": "no"}, InvalidRequest),
        ("exchanges", {"sort": "color"}, InvalidRequest),
        ("bindings", {}, InvalidRequest),
        ("bindings", {"to_queue": "q", "from_exchange": "x"}, InvalidRequest),
        ("bindings", {"from_exchange": "missing"}, ExchangeNotFound),
        ("route", {"exchange": "missing"}, ExchangeNotFound),
        ("route", {"exchange": "amq.topic", "routing_key": "k" * 256}, InvalidRequest),
        ("route", {"exchange": "amq.topic", "headers": "[1]"}, InvalidRequest),
        ("route", {"exchange": "amq.topic", "headers": "{"}, InvalidRequest),
        ("route", {"exchange": "amq.topic", "headers": "[" * 100_000}, InvalidRequest),
        ("route", {"exchange": "amq.topic", "headers": '{"CC": "k"}'}, InvalidRequest),
    ],
)
async def test_what_makes_no_sense_is_refused(
    one: AmqpInProcess, view: str, values: dict[str, str], error: type[GatewayError]
) -> None:
    with pytest.raises(error):
        await ask(one, view, **values)


# --- routes


async def test_a_route_is_that_of_a_publish_and_nothing_is_published(
    one: AmqpInProcess,
) -> None:
    await declare_exchange(one, "events", alternate_exchange="amq.fanout")
    peer = await declare_queue(one, "a/b", "lost")
    topic = one.node.kernel.queues.queues("default")[0].name.name
    await bind(one, "events", topic, "order.*")
    await bind(one, "amq.fanout", "lost", "")

    async def queues(key: str, headers: str = "") -> list[str]:
        found = await ask(one, "route", exchange="events", routing_key=key, headers=headers)
        return [row["name"] for row in found["queues"]]

    assert await queues("order.created") == ["a/b"]
    assert await queues("other") == ["lost"]
    assert await queues("other", '{"CC": ["order.paid"]}') == ["a/b"]
    assert (one.ready_count(topic), one.ready_count("lost")) == (0, 0)

    peer.send_bytes(published(1, "order.created", b"m", exchange="events"))
    peer.send_bytes(published(1, "other", b"m", exchange="events"))
    await until(lambda: one.ready_count(topic) == one.ready_count("lost") == 1)


async def test_a_route_has_a_reason_for_each_binding(one: AmqpInProcess) -> None:
    await declare_queue(one, "a/b", "all")
    await bind(one, "amq.headers", "all", "", level=5)
    found = await ask(one, "route", exchange="amq.headers", headers='{"level": 6}')
    (step,) = found["steps"]
    assert (step["exchange"], step["type"], found["queues"]) == ("amq.headers", "headers", [])
    assert step["outcome"].endswith("the message ends here")
    (binding,) = step["bindings"]
    assert (binding["queue"], binding["matches"], binding["arguments"]) == (
        "all",
        False,
        {"level": 5},
    )
    assert binding["reason"] == "x-match=all: the header 'level' has another value"


async def test_the_default_exchange_leads_to_queues_by_their_own_names(
    one: AmqpInProcess,
) -> None:
    await declare_queue(one, "a/b")
    found = await ask(one, "route", exchange="amq.default", routing_key="a/b")
    assert [(row["name"], row["kind"]) for row in found["queues"]] == [("a/b", "queue")]
    assert (await ask(one, "route", routing_key="missing"))["total"] == 0


async def test_an_internal_exchange_takes_no_publish(one: AmqpInProcess) -> None:
    name = ExchangeName("default", "inner")
    await one.node.kernel.exchanges.declare(name, "fanout", is_internal=True)
    with pytest.raises(PolicyViolation, match="internal exchange"):
        await ask(one, "route", exchange="inner")


# --- connections


async def test_connections_and_channels_show_what_is_in_flight(one: AmqpInProcess) -> None:
    peer = await declare_queue(one, "work")
    await one.peer().open(1, 2)
    peer.send_bytes(published(1, "work", b"1", b"2", b"3"))
    await until(lambda: one.ready_count("work") == 3)
    peer.send(1, BasicQos(0, 2, global_=False), consume("work", "c"))
    await peer.read(BasicDeliver)
    found = await ask(one, "connections", sort="-unacked")
    first, second = found["rows"]
    assert (first["unacked"], first["user"], first["state"]) == (2, "guest", "running")
    assert (second["channels"], second["unacked"], found["total"]) == (2, 0, 2)
    assert (await ask(one, "connections", vhost="shop"))["total"] == 0
    channels = (await ask(one, "channels", sort="-unacked", limit="1"))["rows"]
    assert [channels[0][name] for name in ("prefetch", "consumers", "queues", "unacked")] == [
        2,
        1,
        ["work"],
        2,
    ]


async def test_a_blocked_publisher_is_shown_as_one(one: AmqpInProcess) -> None:
    peer = await declare_queue(one, "work")
    one.node.disk_alarm.is_raised = True
    peer.send_bytes(published(1, "work", b"m"))
    (row,) = (await ask(one, "connections"))["rows"]
    assert (row["state"], row["is_blocked"]) == ("blocked: the storage is full", True)
    one.node.disk_alarm.look()
    (row,) = (await ask(one, "connections"))["rows"]
    assert (row["state"], row["is_blocked"]) == ("running", False)


async def test_a_connection_is_closed_by_its_name(one: AmqpInProcess) -> None:
    peer = await one.peer().open(1)
    close = actions(Endpoint(one))["close-connection"].run
    (row,) = (await ask(one, "connections"))["rows"]
    await close({"name": row["name"]})
    closed = await peer.read(ConnectionClose)
    assert closed.reply_code == 320
    assert closed.reply_text == "CONNECTION_FORCED - closed by an administrator"
    assert (await ask(one, "connections"))["total"] == 0
    with pytest.raises(ConnectionNotFound):
        await close({"name": row["name"]})
    with pytest.raises(InvalidRequest):
        await close({})
