"""REST for consumer groups: ``/v1/groups`` and below.

``?namespace=`` names another namespace than the default one. A group id may hold any character;
a ``/`` in it is ``%2F`` in the path.
"""

from typing import Any
from uuid import UUID

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import namespace_of, path_text, read_body
from gateway.admin.state import AdminState
from gateway.config.base import FrozenConfig
from gateway.errors import (
    GroupNotEmpty,
    GroupNotFound,
    InvalidRequest,
    OffsetOutOfRange,
    TopicNotFound,
)
from gateway.futures import await_done
from gateway.groups.consumer.model import ConsumerMember
from gateway.groups.cursors import Commit, Cursor
from gateway.groups.model import GroupName, GroupState, Member
from gateway.kernel import Kernel
from gateway.model import TopicName, check_topic_name
from gateway.partition import Partition


class NewOffsets(FrozenConfig):
    """Body of ``POST /v1/groups/<group>/offsets``; without ``partition``, all of the topic.

    ``topic_uuid`` is for who knows the topic by it: one that was deleted and made anew is none.
    """

    topic: str
    topic_uuid: UUID | None = None
    partition: int | None = Field(default=None, ge=0)
    to: str


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/groups``."""

    async def list_groups(request: Request) -> Response:
        kernel = state.running()
        names = kernel.groups.names(namespace_of(request))
        return JSONResponse({"groups": [_summary(kernel, name) for name in names]})

    async def describe_or_delete(request: Request) -> Response:
        kernel, name = state.running(), _group_name(request)
        if request.method == "DELETE":
            await await_done(lambda on_done: kernel.groups.delete(name, on_done))
            return Response(status_code=204)
        return JSONResponse(_details(kernel, name))

    async def offsets(request: Request) -> Response:
        kernel, name = state.running(), _group_name(request)
        if request.method == "POST":
            body = await read_body(request, NewOffsets)
            return JSONResponse({"offsets": await _move(kernel, name, body)})
        _check_there(kernel, name)
        cursors = kernel.cursors.fetch_all(name)
        return JSONResponse({"offsets": [_position(kernel, cursor) for cursor in cursors]})

    return [
        Route("/groups", list_groups, methods=["GET"]),
        Route("/groups/{group}", describe_or_delete, methods=["GET", "DELETE"]),
        Route("/groups/{group}/offsets", offsets, methods=["GET", "POST"]),
    ]


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


async def _move(kernel: Kernel, name: GroupName, body: NewOffsets) -> list[dict[str, Any]]:
    """Commit offsets for a group without members; it need not exist."""
    kernel.groups.owners.check(name)
    group = kernel.groups.find(name)
    if group is not None and not group.is_idle:
        msg = f"group {name.name!r} has members, who would commit over it; stop them first"
        raise GroupNotEmpty(msg)
    topic = kernel.topics.get(TopicName(name.namespace, check_topic_name(body.topic)))
    if body.topic_uuid not in {None, topic.uuid}:
        msg = f"topic {body.topic} is there, but not the one with the uuid {body.topic_uuid}"
        raise TopicNotFound(msg)
    numbers = range(len(topic.partition_ids)) if body.partition is None else [body.partition]
    partitions = [kernel.broker.partition(topic, number) for number in numbers]
    commits = [
        Commit(topic.uuid, partition.number, _offset(partition, body.to))
        for partition in partitions
    ]
    await await_done(lambda on_done: kernel.cursors.commit(name, commits, on_done))
    return [
        {"topic": body.topic, "partition": commit.number, "offset": commit.offset}
        for commit in commits
    ]


def _offset(partition: Partition, to: str) -> int:
    if to == "earliest":
        return partition.log_start_offset
    if to == "latest":
        return partition.high_watermark
    if not (to.isascii() and to.isdigit()):
        msg = f"to: earliest, latest or an offset, not {to[:80]!r}"
        raise InvalidRequest(msg)
    if not partition.log_start_offset <= int(to) <= partition.high_watermark:
        msg = (
            f"offset {to[:20]} of partition {partition.number} is not "
            f"{partition.log_start_offset} to {partition.high_watermark}"
        )
        raise OffsetOutOfRange(msg)
    return int(to)
