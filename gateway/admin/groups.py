"""REST for consumer and share groups: ``/v1/groups`` and below.

``?namespace=`` names another namespace than the default one. A group id may hold any character;
a ``/`` in it is ``%2F`` in the path. ``?limit=`` asks for a page (``gateway.admin.paging``).
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.group_pages import GROUP_SORTS, POSITION_SORTS, group_page, position_page
from gateway.admin.offset_moves import NewOffsets, move_offsets
from gateway.admin.paging import page_of
from gateway.admin.requests import changes, namespace_of, path_text, read_body, topic_name
from gateway.admin.share_groups import (
    group_type,
    is_share_group,
    share_position_view,
    share_positions,
)
from gateway.admin.state import AdminState
from gateway.errors import GroupNotFound, GroupSubscribed
from gateway.futures import await_done
from gateway.groups.consumer.model import ConsumerMember
from gateway.groups.cursors import Cursor
from gateway.groups.model import GroupName, GroupState, Member
from gateway.kernel import Kernel
from gateway.shares.group_queues import delete_share_group, forget_share_topic


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/groups``."""

    async def list_groups(request: Request) -> Response:
        kernel, page = state.running(), page_of(request, GROUP_SORTS)
        names = kernel.groups.names(namespace_of(request))
        if page is not None:
            return JSONResponse(await group_page(kernel, names, page))
        return JSONResponse({"groups": [_summary(kernel, name) for name in names]})

    async def describe_or_delete(request: Request) -> Response:
        kernel, name = state.running(), _group_name(request)
        if request.method == "DELETE":
            await _delete(kernel, name)
            return Response(status_code=204)
        return JSONResponse(_details(kernel, name))

    async def offsets(request: Request) -> Response:
        kernel, name = state.running(), _group_name(request)
        if request.method == "POST":
            body = await read_body(request, NewOffsets)
            if body.dry_run:
                return JSONResponse({"offsets": await move_offsets(kernel, name, body)})
            with changes(kernel, request, "group.move_offsets", name.name):
                moved = await move_offsets(kernel, name, body)
            return JSONResponse({"offsets": moved})
        _check_there(kernel, name)
        page = page_of(request, POSITION_SORTS)
        if page is not None:
            return JSONResponse(await position_page(kernel, name, page))
        return JSONResponse({"offsets": _positions(kernel, name)})

    return [
        Route("/groups", list_groups, methods=["GET"]),
        Route("/groups/{group}", describe_or_delete, methods=["GET", "DELETE"]),
        Route("/groups/{group}/offsets", offsets, methods=["GET", "POST"]),
        *_forgetting(state),
    ]


def _forgetting(state: AdminState) -> list[Route]:
    """Return the route that removes a group's positions in a topic."""

    async def forget(request: Request) -> Response:
        kernel, name = state.running(), _group_name(request)
        topic = kernel.topics.get(topic_name(request))
        if is_share_group(kernel, name):
            with changes(kernel, request, "group.forget_topic", name.name):
                await forget_share_topic(kernel.groups, kernel.queues, name, topic)
            return Response(status_code=204)
        kernel.groups.check_offsets_removable(name)
        if kernel.groups.is_subscribed(name, topic.name.name):
            raise GroupSubscribed(f"a member of {name.name!r} subscribes to {topic.name.name}")
        gone = [(topic.uuid, number) for number in range(len(topic.partition_ids))]
        with changes(kernel, request, "group.forget_topic", name.name):
            await await_done(lambda on_done: kernel.cursors.delete(name, gone, on_done))
        return Response(status_code=204)

    return [Route("/groups/{group}/topics/{topic}", forget, methods=["DELETE"])]


async def _delete(kernel: Kernel, name: GroupName) -> None:
    if is_share_group(kernel, name):
        await delete_share_group(kernel.groups, kernel.queues, name)
    else:
        await await_done(lambda on_done: kernel.groups.delete(name, on_done))


def _group_name(request: Request) -> GroupName:
    return GroupName(namespace_of(request), path_text(request, "group"))


def _check_there(kernel: Kernel, name: GroupName) -> None:
    if not kernel.groups.has(name):
        msg = f"no group {name.name!r}"
        raise GroupNotFound(msg)


def _summary(kernel: Kernel, name: GroupName) -> dict[str, Any]:
    """Return a group's summary; a group that only commits offsets is empty and has no type."""
    group = kernel.groups.find(name)
    return {
        "namespace": name.namespace,
        "group_id": name.name,
        "type": group_type(group),
        "state": (GroupState.EMPTY if group is None else group.state).value,
        "protocol_type": None if group is None else group.protocol_type,
        "members": 0 if group is None else len(group.members),
    }


def _details(kernel: Kernel, name: GroupName) -> dict[str, Any]:
    _check_there(kernel, name)
    group = kernel.groups.find(name)
    members: list[Member | ConsumerMember] = []
    if group is not None:
        members.extend(group.members)
    return {
        **_summary(kernel, name),
        "generation": 0 if group is None else group.generation,
        "protocol": None if group is None else group.protocol_name,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
            }
            for member in members
        ],
    }


def _positions(kernel: Kernel, name: GroupName) -> list[dict[str, Any]]:
    if is_share_group(kernel, name):
        return [share_position_view(one) for one in share_positions(kernel, name)]
    return [_position(kernel, cursor) for cursor in kernel.cursors.fetch_all(name)]


def _position(kernel: Kernel, cursor: Cursor) -> dict[str, Any]:
    """Return a committed offset, and its lag if the partition is there and this node's."""
    topic = kernel.topics.by_uuid(cursor.topic_uuid)
    end = None
    is_there = topic is not None and cursor.number < len(topic.partition_ids)
    if topic is not None and is_there and kernel.broker.owns(topic, cursor.number):
        end = kernel.broker.partition(topic, cursor.number).high_watermark
    return {
        "topic": str(cursor.topic_uuid) if topic is None else topic.name.name,
        "partition": cursor.number,
        "offset": cursor.offset,
        "end": end,
        "lag": None if end is None else max(0, end - cursor.offset),
        "metadata": cursor.metadata,
        "committed_unix_ms": cursor.committed_unix_ms,
    }
