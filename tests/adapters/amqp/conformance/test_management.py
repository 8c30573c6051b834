"""RabbitMQ's HTTP API: what its tools call, with RabbitMQ's statuses, texts and fields."""

from collections.abc import Callable, Iterator

import pika
import pytest

from tests.support.amqp_management import ManagementClient, named
from tests.support.amqp_target import NEWER, OWN, AmqpTarget
from tests.support.waiting import wait_until

NOT_FOUND = {"error": "Object Not Found", "reason": "Not Found"}


@pytest.fixture
def api(target: AmqpTarget) -> ManagementClient:
    return ManagementClient(target.management_port)


@pytest.fixture
def queue(api: ManagementClient, name: str) -> Iterator[str]:
    api.put(f"queues/%2F/{name}", {"durable": True, "arguments": {"x-max-length": 10}})
    yield name
    api.call("DELETE", f"queues/%2F/{name}")


def shows(condition: Callable[[], bool]) -> None:
    """Wait until the API shows something: RabbitMQ gathers it every few seconds."""
    wait_until(condition, within_s=60, what="the API shows it")


def published(
    api: ManagementClient, routing_key: str, payload: str, **properties: object
) -> bool:
    body = {
        "properties": properties,
        "routing_key": routing_key,
        "payload": payload,
        "payload_encoding": "string",
    }
    return bool(api.post("exchanges/%2F/amq.default/publish", body)["routed"])


def got(
    api: ManagementClient, queue: str, mode: str, count: int = 10
) -> list[dict[str, object]]:
    body = {"count": count, "ackmode": mode, "encoding": "auto"}
    found: list[dict[str, object]] = api.post(f"queues/%2F/{queue}/get", body)
    return found


# --- login, errors


def test_a_call_without_a_login_is_refused(target: AmqpTarget) -> None:
    answer = ManagementClient(target.management_port, "").call("GET", "whoami")
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'


@pytest.mark.parametrize(
    "path", ["nope", "queues/%2F/none", "exchanges/none/x", "vhosts/none", "policies/%2F/none"]
)
def test_a_missing_thing_is_not_found(api: ManagementClient, path: str) -> None:
    answer = api.call("GET", path)
    assert (answer.status, answer.body) == (404, NOT_FOUND)


@pytest.mark.parametrize("body", [b"{bad", b"[]", b'"text"'])
def test_a_body_that_is_no_object_is_refused(
    api: ManagementClient, name: str, body: bytes
) -> None:
    answer = api.call("PUT", f"queues/%2F/{name}", body)
    assert answer.status == 400
    assert answer.body["error"] == "bad_request"


def test_a_method_that_a_path_lacks_is_not_allowed(api: ManagementClient) -> None:
    assert api.call("POST", "overview", {}).status == 405


@OWN
@pytest.mark.parametrize("body", [b" " * 2_097_153, b'{"x": [' + b"[]," * 100_000 + b"[]]}"])
def test_a_publish_of_more_than_its_bound_is_refused(
    api: ManagementClient, body: bytes
) -> None:
    answer = api.call("POST", "exchanges/%2F/amq.default/publish", body)
    assert answer.status == 400
    assert answer.body["reason"] == "Exceeded HTTP request body size limit"


# --- queues and exchanges


def test_a_queue_is_declared_once(api: ManagementClient, name: str) -> None:
    body = {"durable": "true", "auto_delete": "false", "arguments": {"x-max-length": 10}}
    statuses = [api.call("PUT", f"queues/%2F/{name}", body).status for _ in range(2)]
    view = api.get(f"queues/%2F/{name}")
    other = api.call("PUT", f"queues/%2F/{name}", {"durable": False})
    api.delete(f"queues/%2F/{name}")
    assert statuses == [201, 204]
    assert view["arguments"] == {"x-max-length": 10}
    assert (view["durable"], view["auto_delete"], view["type"]) == (True, False, "classic")
    assert other.status == 400
    assert other.body["reason"] == (
        f"inequivalent arg 'durable' for queue '{name}' in vhost '/': received 'false' but "
        "current is 'true'"
    )
    assert api.call("DELETE", f"queues/%2F/{name}").status == 404


def test_a_queue_of_any_name_is_found(api: ManagementClient, name: str) -> None:
    path = f"queues/%2F/{named(name + '/b c?')}"
    api.put(path, {})
    assert api.get(path)["name"] == f"{name}/b c?"
    api.delete(path)


def test_a_reserved_name_is_refused(api: ManagementClient, name: str) -> None:
    answer = api.call("PUT", f"queues/%2F/amq.{name}", {"durable": True})
    assert (answer.status, answer.body["reason"]) == (401, "Access refused.")


def test_an_exchange_is_declared_once(api: ManagementClient, name: str) -> None:
    body = {"type": "topic", "durable": True}
    statuses = [api.call("PUT", f"exchanges/%2F/{name}", body).status for _ in range(2)]
    other = api.call("PUT", f"exchanges/%2F/{name}", {"type": "direct", "durable": True})
    unknown = api.call("PUT", f"exchanges/%2F/{name}-x", {"type": "nosuch"})
    view = api.get(f"exchanges/%2F/{name}")
    api.delete(f"exchanges/%2F/{name}")
    assert statuses == [201, 204]
    assert view["type"] == "topic"
    assert other.body["reason"].endswith("received 'direct' but current is 'topic'")
    assert unknown.body == {"error": "bad_request", "reason": "unknown exchange type 'nosuch'"}


def test_the_default_exchange_is_shown(api: ManagementClient) -> None:
    view = api.get("exchanges/%2F/amq.default")
    assert (view["name"], view["type"], view["durable"]) == ("", "direct", True)
    assert "" in {one["name"] for one in api.get("exchanges/%2F")}


def test_a_binding_has_a_key_and_goes_by_it(api: ManagementClient, queue: str) -> None:
    ends = f"bindings/%2F/e/amq.topic/q/{queue}"
    answer = api.call("POST", ends, {"routing_key": "a.*", "arguments": {}})
    assert (answer.status, answer.headers["location"]) == (201, f"{queue}/a.%252A")
    assert [one["properties_key"] for one in api.get(ends)] == ["a.%2A"]
    assert api.get(f"{ends}/a.%252A")["routing_key"] == "a.*"
    api.delete(f"{ends}/a.%252A")
    assert api.call("DELETE", f"{ends}/a.%252A").status == 404


def test_a_binding_with_arguments_goes_by_its_key(api: ManagementClient, queue: str) -> None:
    ends = f"bindings/%2F/e/amq.headers/q/{queue}"
    api.post(ends, {"routing_key": "k", "arguments": {"x-match": "all", "n": 1}})
    [view] = api.get(ends)
    assert view["arguments"] == {"x-match": "all", "n": 1}
    assert view["properties_key"].startswith("k~")
    api.delete(f"{ends}/{named(view['properties_key'])}")
    assert api.get(ends) == []


def test_every_queue_is_bound_to_the_default_exchange(
    api: ManagementClient, queue: str
) -> None:
    [view] = api.get(f"queues/%2F/{queue}/bindings")
    assert (view["source"], view["routing_key"]) == ("", queue)
    answer = api.call("POST", f"bindings/%2F/e/amq.default/q/{queue}", {"routing_key": "z"})
    assert answer.status == 401


# --- messages


def test_a_published_message_is_got(api: ManagementClient, queue: str) -> None:
    assert published(api, queue, "hello", delivery_mode=2, headers={"h": 1}, message_id="m")
    assert not published(api, f"{queue}-none", "lost")
    [first] = got(api, queue, "ack_requeue_true")
    [again] = got(api, queue, "ack_requeue_false")
    assert first == {
        "payload": "hello",
        "payload_bytes": 5,
        "payload_encoding": "string",
        "redelivered": False,
        "exchange": "",
        "routing_key": queue,
        "message_count": 0,
        "properties": {"delivery_mode": 2, "headers": {"h": 1}, "message_id": "m"},
    }
    assert again == {**first, "redelivered": True}
    assert got(api, queue, "ack_requeue_true") == []


def test_bytes_are_base64(api: ManagementClient, queue: str) -> None:
    body = {
        "properties": {},
        "routing_key": queue,
        "payload": "AAH/",
        "payload_encoding": "base64",
    }
    api.post("exchanges/%2F/amq.default/publish", body)
    [message] = got(api, queue, "reject_requeue_true")
    assert (message["payload"], message["payload_encoding"]) == ("AAH/", "base64")
    assert message["properties"] == []


def test_a_publish_names_what_is_missing(api: ManagementClient, queue: str) -> None:
    body = {"properties": {}, "routing_key": queue}
    answer = api.call("POST", "exchanges/%2F/amq.default/publish", body)
    assert answer.status == 400
    assert answer.body["reason"] == "[{key_missing,payload},{key_missing,payload_encoding}]"


def test_a_publish_has_the_texts_of_amqp(api: ManagementClient, queue: str) -> None:
    body = {"routing_key": queue, "payload": "x", "payload_encoding": "string"}
    wrong = api.call(
        "POST",
        "exchanges/%2F/amq.default/publish",
        {**body, "properties": {"expiration": "1x"}},
    )
    gone = api.call("POST", "exchanges/%2F/none/publish", {**body, "properties": {}})
    assert wrong.body["reason"] == (
        "406 PRECONDITION_FAILED - invalid expiration '1x': {leftover_string,\"x\"}"
    )
    assert (gone.status, gone.body["reason"]) == (
        400,
        "404 NOT_FOUND - no exchange 'none' in vhost '/'",
    )


def test_a_queue_is_purged(api: ManagementClient, queue: str) -> None:
    published(api, queue, "1")
    api.delete(f"queues/%2F/{queue}/contents")
    assert got(api, queue, "ack_requeue_true") == []


# --- lists


def test_a_list_has_pages(api: ManagementClient, queue: str) -> None:
    first = api.get(f"queues?page=1&page_size=1&name={queue}&columns=name")
    beyond = api.call("GET", f"queues?page=9&page_size=1&name={queue}")
    invalid = api.call("GET", "queues?page=0")
    total = first.pop("total_count")
    assert first == {
        "filtered_count": 1,
        "item_count": 1,
        "items": [{"name": queue}],
        "page": 1,
        "page_count": 1,
        "page_size": 1,
    }
    assert total >= 1
    assert (beyond.status, beyond.body["error"]) == (400, "page_out_of_range")
    assert invalid.body == {
        "error": "invalid_pagination_parameters",
        "reason": "Invalid pagination parameters: page number 0, page size undefined",
    }
    assert api.call("GET", "queues?page=x").body["reason"] == (
        "Pagination parameters are invalid"
    )


def test_a_list_is_sorted_and_cut_to_columns(api: ManagementClient, queue: str) -> None:
    other = f"{queue}-2"
    api.put(f"queues/%2F/{other}", {})
    rows = api.get("queues/%2F?sort=name&sort_reverse=true&columns=name,arguments.x-max-length")
    api.delete(f"queues/%2F/{other}")
    mine = [row for row in rows if row["name"].startswith(queue)]
    assert mine == [
        {"name": other, "arguments": {}},
        {"name": queue, "arguments": {"x-max-length": 10}},
    ]


# --- clients


@pytest.fixture
def connection(target: AmqpTarget) -> Iterator[pika.BlockingConnection]:
    made = pika.BlockingConnection(pika.URLParameters(target.url))
    yield made
    if made.is_open:
        made.close()


def test_clients_are_shown_and_closed(
    api: ManagementClient, connection: pika.BlockingConnection, queue: str
) -> None:
    channel = connection.channel()
    channel.basic_qos(prefetch_count=7)
    channel.basic_consume(queue, lambda *_: None, consumer_tag=f"tag-{queue}")

    def mine() -> list[dict[str, object]]:
        rows = api.get("consumers/%2F")
        return [
            row
            for row in rows
            if row["consumer_tag"] == f"tag-{queue}" and row["channel_details"]
        ]

    shows(lambda: bool(mine()))
    [consumer] = mine()
    assert (consumer["prefetch_count"], consumer["ack_required"]) == (7, True)
    assert consumer["queue"] == {"name": queue, "vhost": "/"}
    details = consumer["channel_details"]
    assert isinstance(details, dict)
    name = details["connection_name"]
    shows(lambda: name in {one["name"] for one in api.get("connections")})
    assert api.get(f"connections/{named(name)}")["user"] == "guest"
    shows(lambda: details["name"] in {one["name"] for one in api.get("channels")})
    api.delete(f"connections/{named(name)}")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.process_data_events(time_limit=30)
    assert caught.value.reply_code == 320


# --- policies


def test_a_policy_is_shown_with_its_queue(api: ManagementClient, queue: str) -> None:
    pattern = f"^{queue}$"
    definition = {"max-length": 4}
    path, operator = f"policies/%2F/{queue}", f"operator-policies/%2F/{queue}"
    body = {
        "pattern": pattern,
        "definition": definition,
        "apply-to": "queues",
        "priority": 1_000,
    }
    assert [api.call("PUT", path, body).status for _ in range(2)] == [201, 204]
    api.put(operator, {"pattern": pattern, "definition": {"max-length": 2}})
    shown = api.get(path)
    assert shown == {"vhost": "/", "name": queue, **body}
    shows(lambda: api.get(f"queues/%2F/{queue}").get("operator_policy") == queue)
    view = api.get(f"queues/%2F/{queue}")
    assert (view["policy"], view["effective_policy_definition"]) == (queue, {"max-length": 2})
    api.delete(path)
    api.delete(operator)
    assert api.call("DELETE", path).status == 404


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"definition": {}}, "no policy provided"),
        ({"definition": {"nope": 3}}, "are not recognised policy settings"),
        ({"definition": {"max-length": "x"}}, "is not a valid maximum length"),
        ({"pattern": "("}, "pattern should be regular expression but is invalid: "),
        ({"priority": "high"}, "priority should be a number, actually was "),
        ({"apply-to": "none"}, "apply-to 'none' unrecognised; should be 'queues', 'exchanges'"),
    ],
)
def test_a_wrong_policy_is_refused(
    api: ManagementClient, name: str, change: dict[str, object], text: str
) -> None:
    body = {"pattern": "^never", "definition": {"max-length": 1}, "priority": 0} | change
    answer = api.call("PUT", f"policies/%2F/{name}", body)
    assert answer.status == 400
    assert answer.body["reason"].startswith("Validation failed\n\n")
    assert text in answer.body["reason"]


def test_an_operator_policy_only_bounds(api: ManagementClient, name: str) -> None:
    body = {"pattern": "^never", "definition": {"dead-letter-exchange": "x"}}
    answer = api.call("PUT", f"operator-policies/%2F/{name}", body)
    assert answer.status == 400
    assert "are not recognised policy settings" in answer.body["reason"]


# --- the node


def test_the_overview_counts(api: ManagementClient, queue: str) -> None:
    found = api.get("overview")
    assert found["object_totals"]["queues"] >= 1
    assert {one["name"] for one in found["exchange_types"]} >= {"direct", "topic"}
    assert {"amqp", "http"} <= {one["protocol"] for one in found["listeners"]}
    [node] = api.get("nodes")
    assert node["running"]
    assert node["mem_used"] > 0
    assert api.get(f"nodes/{named(found['node'])}")["name"] == found["node"]
    assert queue in {one["name"] for one in api.get("queues")}


def test_health_checks_answer(api: ManagementClient, target: AmqpTarget) -> None:
    assert api.get("health/checks/alarms") == {"status": "ok"}
    assert api.get("health/checks/virtual-hosts") == {"status": "ok"}
    assert api.get(f"health/checks/port-listener/{target.port}")["status"] == "ok"
    assert api.get("health/checks/protocol-listener/amqp")["status"] == "ok"
    assert api.call("GET", "health/checks/port-listener/1").status == 503
    assert api.call("GET", "health/checks/protocol-listener/mqtt").status == 503


@OWN
def test_the_aliveness_test_answers(api: ManagementClient) -> None:
    assert api.get("aliveness-test/%2F") == {"status": "ok"}


@NEWER
def test_the_node_is_ready_for_clients(api: ManagementClient) -> None:
    assert api.get("health/checks/ready-to-serve-clients") == {"status": "ok"}


def test_vhosts_and_their_limits(api: ManagementClient, name: str) -> None:
    path = f"vhosts/{name}"
    assert api.call("PUT", path, {"description": "d", "tags": "a,b"}).status == 201
    assert api.call("PUT", path, {}).status == 204
    assert api.get(path)["name"] == name
    if api.credentials == "guest:guest":
        body = {"configure": ".*", "write": ".*", "read": ".*"}
        api.call("PUT", f"permissions/{name}/guest", body)
    api.put(f"vhost-limits/{name}/max-queues", {"value": 1})
    assert api.get(f"vhost-limits/{name}") == [{"vhost": name, "value": {"max-queues": 1}}]
    api.put(f"queues/{name}/one", {})
    answer = api.call("PUT", f"queues/{name}/two", {})
    assert answer.status == 400
    assert answer.body["reason"] == (
        f"cannot declare queue 'two': queue limit in vhost '{name}' (1) is reached"
    )
    api.delete(f"vhost-limits/{name}/max-queues")
    api.delete(path)
    assert api.call("GET", path).status == 404


def test_a_component_of_no_plugin_is_refused(api: ManagementClient, name: str) -> None:
    answer = api.call("PUT", f"parameters/shovel/%2F/{name}", {"value": {}})
    assert answer.body == {
        "error": "bad_request",
        "reason": "Validation failed\n\ncomponent shovel not found\n",
    }


def test_global_parameters_are_kept(api: ManagementClient, name: str) -> None:
    api.put(f"global-parameters/{name}", {"value": {"a": 1}})
    assert api.get(f"global-parameters/{name}") == {"name": name, "value": {"a": 1}}
    api.delete(f"global-parameters/{name}")
    assert api.call("GET", f"global-parameters/{name}").status == 404
