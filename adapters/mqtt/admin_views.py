"""Views of MQTT for the console: sessions, subscriptions, retained messages, receivers of a topic.

A view goes through sessions or subscriptions up to the rows that are asked for; with a text to
look for, through ``LOOKED_AT_MAX`` of them at most, and says so.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from adapters.mqtt.connection.web_pages import refusal_of
from adapters.mqtt.errors import MqttError
from adapters.mqtt.node import Node
from adapters.mqtt.packets.topic_names import check_topic
from adapters.mqtt.session_service import end_connection
from adapters.mqtt.sessions.client_session import ClientSession
from adapters.mqtt.subscriptions.filters import check_filter
from adapters.mqtt.wire import PublishRun
from gateway.admin_views import Action, View, ViewQuery
from gateway.errors import InvalidRequest
from gateway.shards.calls import ShardCalls

LOOKED_AT_MAX: Final = 100_000
RETAINED_BYTES_MAX: Final = 1_048_576  # of one answer
VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5.0"}
_Row = TypeVar("_Row")


def views(node: Node) -> Mapping[str, View]:
    """Return the views by name."""
    return {
        "sessions": lambda query: _sessions(node, query),
        "subscriptions": lambda query: _subscriptions(node, query),
        "retained": lambda query: _retained(node, query),
        "receivers": lambda query: _receivers(node, query),
        "websocket": lambda query: _websocket(node, query),
    }


def actions(node: Node, calls: ShardCalls) -> Mapping[str, Action]:
    """Return the changes by name; ``calls`` reaches sessions of other nodes."""
    return {"disconnect": lambda body: _disconnect(node, calls, body)}


def _sessions(node: Node, query: ViewQuery) -> dict[str, Any]:
    found = _part(iter(node.sessions), query, lambda session: session.client_id)
    return {
        "rows": [_session(session) for session in found.rows],
        "total": node.sessions.count if found.total is None else found.total,
        "is_whole": found.is_whole,
    }


def _session(session: ClientSession) -> dict[str, Any]:
    connection = session.connection
    return {
        "client_id": session.client_id,
        "user": session.username,
        "host": session.host,
        "is_connected": connection is not None,
        "version": None if connection is None else VERSIONS.get(connection.version),
        "subscriptions": len(session.subscriptions),
        "in_flight": session.outbox.count,
        "partitions_behind": len(session.behind),
        "unwritten_bytes": 0 if connection is None else connection.out_bytes,
        "expiry_s": session.expiry_s,
        "disconnected_unix_ms": session.disconnected_unix_ms or None,
    }


def _subscriptions(node: Node, query: ViewQuery) -> dict[str, Any]:
    every = (
        (session.client_id, written, one)
        for session in node.sessions
        for written, one in session.subscriptions.items()
    )
    found = _part(every, query, lambda row: f"{row[1]} {row[0]}")
    total = node.sessions.subscription_count if found.total is None else found.total
    return {
        "rows": [
            {
                "client_id": client_id,
                "filter": written,
                "group": one.group,
                "qos": one.qos,
                "no_local": one.no_local,
                "retain_as_published": one.retain_as_published,
                "identifier": one.identifier or None,
            }
            for client_id, written, one in found.rows
        ],
        "total": total,
        "is_whole": found.is_whole,
    }


def _retained(node: Node, query: ViewQuery) -> dict[str, Any]:
    """Return retained messages by a filter, and the topic after which to go on."""
    topic_filter = query.values.get("filter") or "#"
    _checked(lambda: check_filter(topic_filter, levels_max=node.config.topic_levels_max))
    after = _decoded(query.values.get("after", ""))
    runs, next_after = node.retained.match(
        topic_filter,
        after=after,
        count_max=query.limit,
        bytes_max=RETAINED_BYTES_MAX,
        as_runs=True,
    )
    return {
        "rows": [_retained_row(run) for run in runs if isinstance(run, PublishRun)],
        "next": None if next_after is None else base64.b64encode(next_after).decode(),
        "total": len(node.retained),
        "bytes": node.retained.size_bytes,
    }


def _retained_row(run: PublishRun) -> dict[str, Any]:
    payload = bytes(run.payloads[0])
    row: dict[str, Any] = {
        "topic": run.topic.decode(),
        "qos": run.qos,
        "publisher": run.client_id,
        "expires_at_unix_ms": run.expires_at_unix_ms or None,
    }
    try:
        return {**row, "value": payload.decode()}
    except UnicodeDecodeError:
        return {**row, "value_base64": base64.b64encode(payload).decode()}


def _receivers(node: Node, query: ViewQuery) -> dict[str, Any]:
    """Return the receivers of a topic's next message, as far as subscriptions say."""
    text = query.values.get("topic", "")
    topic = text.encode()
    if not topic:
        raise InvalidRequest("topic: a topic name")
    _checked(lambda: check_topic(topic))
    matches = node.distributor.trie.match(topic).matches
    route = node.routes.find(topic, 1)
    return {
        "rows": [
            _receiver(match.subscriber, match.qos, match.subscriptions[0].topic_filter)
            for match in islice(matches, query.limit)
        ],
        "total": len(matches),
        "log_topic": route.log_topic,
        "has_retained": node.retained.get(topic) is not None,
    }


def _receiver(subscriber: Any, qos: int, topic_filter: str) -> dict[str, Any]:  # noqa: ANN401
    if subscriber.is_group:
        return {
            "group": subscriber.name,
            "filter": subscriber.written,
            "qos": qos,
            "members": len(subscriber.members),
            "is_connected": bool(subscriber.online),
        }
    return {
        "client_id": subscriber.client_id,
        "filter": topic_filter,
        "qos": qos,
        "is_connected": subscriber.connection is not None,
    }


def _websocket(node: Node, query: ViewQuery) -> dict[str, Any]:
    """Return whether the WebSocket listener is on, and why it refuses the page of an origin."""
    config = node.config.websocket
    if config is None or not config.enabled:
        return {"is_on": False, "refusal": None}
    refusal = refusal_of(
        config,
        origin=query.values.get("origin"),
        host=query.values.get("host"),
        is_login_required=node.authenticator.required,
    )
    if refusal is None and config.proxy_protocol:
        refusal = "it expects a PROXY protocol header, which browsers do not send"
    return {"is_on": True, "refusal": refusal}


async def _disconnect(node: Node, calls: ShardCalls, body: Mapping[str, Any]) -> dict[str, Any]:
    client_id = body.get("client_id")
    if not isinstance(client_id, str):
        raise InvalidRequest("client_id: a client identifier")
    await end_connection(node, calls, client_id)
    return {"client_id": client_id}


class _Found:
    """Rows of a view; ``total`` is None where all count, without a text to look for."""

    def __init__(self, rows: list[Any], total: int | None, *, is_whole: bool) -> None:
        self.rows = rows
        self.total = total
        self.is_whole = is_whole


def _part(rows: Iterator[_Row], query: ViewQuery, name: Callable[[_Row], str]) -> _Found:
    """Return the rows that a query asks for; not all are looked at for a text."""
    end = query.offset + query.limit
    if not query.contains:
        return _Found(list(islice(rows, query.offset, end)), None, is_whole=True)
    looked_at = list(islice(rows, LOOKED_AT_MAX))
    found = [row for row in looked_at if query.contains in name(row)]
    is_whole = len(looked_at) < LOOKED_AT_MAX
    return _Found(found[query.offset : end], len(found), is_whole=is_whole)


def _checked(check: Callable[[], Iterable[Any] | None]) -> None:
    try:
        check()
    except MqttError as error:
        raise InvalidRequest(str(error)) from error


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidRequest(f"after: {error}") from error
