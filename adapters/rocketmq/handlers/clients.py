"""Clients: HEART_BEAT (34), UNREGISTER_CLIENT (35), lists of consumers (38), check of filters (46).

A heartbeat has all groups of a client, each with what it subscribes to. The C++ client leaves out
lists that are empty. ``withoutSub`` is a heartbeat of the second version, whose subscriptions have
not changed.
"""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from adapters.rocketmq.names import check_group
from adapters.rocketmq.node import Subscriptions, group_name
from adapters.rocketmq.remoting.errors import Refused
from adapters.rocketmq.remoting.fields import text_of
from adapters.rocketmq.remoting.wire import ResponseCode
from adapters.rocketmq.request import Request
from adapters.rocketmq.subscriptions import decode_subscription, filter_of
from gateway.auth.ports import Operation, ResourceType
from gateway.groups.client_roster import ClientRoster

GROUPS_MAX: Final = 1_000
"""Groups of one heartbeat."""
SUBSCRIPTIONS_MAX: Final = 1_000
"""Subscriptions of one group in a heartbeat."""
CLIENT_ID_CHARS_MAX: Final = 500


def heart_beat(request: Request) -> None:
    """Add a client to its groups, or keep it there. Other members hear of a change."""
    data = _json(request)
    client_id = data.get("clientID")
    if not isinstance(client_id, str) or not 0 < len(client_id) <= CLIENT_ID_CHARS_MAX:
        raise _invalid(f"clientID has 1 to {CLIENT_ID_CHARS_MAX} characters")
    node, client = request.node, request.client
    client.client_id = client_id
    producers = [
        check_group(_name(one)) for one in _objects(data, "producerDataSet", GROUPS_MAX)
    ]
    consumers = list(_consumers(request, data))
    for group in producers:
        node.producers.beat(group_name(group), client_id, client, None)
    is_changed = False
    for group, subscribed in consumers:
        name = group_name(group)
        member = node.consumers.find(name, client_id)
        if subscribed is not None:
            node.consumers.beat(name, client_id, client, subscribed)
        elif member is not None:
            node.consumers.beat(name, client_id, client, member.subscription)
        else:
            is_changed = True  # the client sends its subscriptions with its next one
    fields = {"IS_SUPPORT_HEART_BEAT_V2": "true"}
    if data.get("heartbeatFingerprint"):
        fields["IS_SUB_CHANGE"] = "true" if is_changed else "false"
    request.reply(fields)


def _consumers(
    request: Request, data: dict[str, Any]
) -> Iterator[tuple[str, Subscriptions | None]]:
    """Yield each consumer's group and subscriptions; None for those it had before."""
    is_bare = data.get("withoutSub") is True
    for consumer in _objects(data, "consumerDataSet", GROUPS_MAX):
        group = check_group(_name(consumer))
        request.authorize(Operation.READ, ResourceType.GROUP, group)
        subscribed = _objects(consumer, "subscriptionDataSet", SUBSCRIPTIONS_MAX)
        yield group, None if is_bare else dict(map(decode_subscription, subscribed))


def unregister_client(request: Request) -> None:
    """Remove a client from a group of producers, of consumers, or from both."""
    client_id = text_of(request.fields, "clientID")
    _leave(request, request.node.producers, "producerGroup", client_id)
    _leave(request, request.node.consumers, "consumerGroup", client_id)
    request.reply()


def _leave(request: Request, roster: ClientRoster[Any], field: str, client_id: str) -> None:
    """Remove a client from the group that a field names, if it has come by this connection."""
    group = request.fields.get(field)
    if not group:
        return
    name = group_name(group)
    member = roster.find(name, client_id)
    if member is not None and member.holder is request.client:
        roster.leave(name, client_id)


def consumer_list(request: Request) -> None:
    """Answer with the client ids of a group's consumers; SYSTEM_ERROR without any."""
    group = text_of(request.fields, "consumerGroup")
    request.authorize(Operation.DESCRIBE, ResourceType.GROUP, group)
    members = request.node.consumers.members(group_name(group))
    if not members:
        remark = f"no consumer for this group, {group}"
        raise Refused(ResponseCode.SYSTEM_ERROR, remark)
    ids = [member.client_id for member in members]
    request.reply(body=orjson.dumps({"consumerIdList": ids}))


def check_client_config(request: Request) -> None:
    """Check the expression of a subscription."""
    data = _json(request).get("subscriptionData")
    if isinstance(data, dict):
        _, subscription = decode_subscription(data)
        filter_of(subscription.expression, subscription.expression_type)
    request.reply()


def _json(request: Request) -> dict[str, Any]:
    try:
        data = orjson.loads(request.command.body)
    except orjson.JSONDecodeError as error:
        raise _invalid(f"the body is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise _invalid("the body is no JSON object")
    return data


def _objects(data: dict[str, Any], name: str, count_max: int) -> list[dict[str, Any]]:
    """Return a list of objects, empty when it is left out."""
    found = data.get(name) or []
    if not isinstance(found, list) or len(found) > count_max:
        raise _invalid(f"{name} is no list of at most {count_max}")
    if not all(isinstance(one, dict) for one in found):
        raise _invalid(f"{name} has something that is no object")
    return found


def _name(data: dict[str, Any]) -> str:
    name = data.get("groupName")
    if not isinstance(name, str):
        raise _invalid("a group has no groupName")
    return name


def _invalid(remark: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, remark)
