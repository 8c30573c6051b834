"""REST for topics: ``/v1/topics`` and below.

``?namespace=`` names another namespace than the default one. ``?limit=`` asks for a page
(``gateway.admin.paging``), which has sizes.
"""

from contextlib import nullcontext
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.paging import Page, page_of
from gateway.admin.requests import changes, namespace_of, read_body, topic_name
from gateway.admin.state import AdminState
from gateway.admin.topic_pages import (
    PARTITION_SORTS,
    TOPIC_SORTS,
    TopicSizes,
    includes,
    partition_page,
    topic_page,
)
from gateway.auth.audit import topic_text
from gateway.config.base import FrozenConfig
from gateway.config.settings import TopicConfigs
from gateway.kernel import Kernel
from gateway.model import TopicName, check_topic_name
from gateway.placement import shard_of
from gateway.topics.manager import Topic


class NewTopic(FrozenConfig):
    """Body of ``POST /v1/topics``."""

    name: str
    partitions: int | None = None
    configs: TopicConfigs = Field(default_factory=dict)
    validate_only: bool = False


class ConfigChanges(FrozenConfig):
    """Body of ``PATCH /v1/topics/<name>/configs``; null restores a config's default."""

    changes: dict[str, str | None]


class PartitionCount(FrozenConfig):
    """Body of ``POST /v1/topics/<name>/partitions``: the new total."""

    total: int = Field(ge=1)


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/topics``."""
    sizes = TopicSizes()

    async def list_or_create(request: Request) -> Response:
        if request.method == "POST":
            return await _create(state.running(), request)
        internal = request.query_params.get("internal") == "true"
        kernel, page = state.running(), page_of(request, TOPIC_SORTS)
        topics = kernel.topics.topics(namespace_of(request), include_internal=internal)
        if page is not None:
            return JSONResponse(await topic_page(kernel, topics, page, sizes))
        return JSONResponse({"topics": [_summary(topic) for topic in topics]})

    async def describe_or_delete(request: Request) -> Response:
        kernel = state.running()
        if request.method == "DELETE":
            name = topic_name(request)
            with changes(kernel, request, "topic.delete", topic_text(name)):
                await kernel.topics.delete(name)
            return Response(status_code=204)
        topic = kernel.topics.get(topic_name(request))
        if not includes(request, "details"):
            return JSONResponse({**_summary(topic), "configs": _configs(kernel, topic)})
        return JSONResponse(_details(kernel, topic))

    async def alter(request: Request) -> Response:
        kernel, name = state.running(), topic_name(request)
        body = await read_body(request, ConfigChanges)
        with changes(kernel, request, "topic.alter_configs", topic_text(name)):
            await kernel.topics.alter_configs(name, body.changes)
        return JSONResponse(_details(kernel, kernel.topics.get(name)))

    async def partitions(request: Request) -> Response:
        kernel, name = state.running(), topic_name(request)
        if request.method == "GET":
            page = page_of(request, PARTITION_SORTS) or Page(50, 0, "number", False, "")  # noqa: FBT003
            return JSONResponse(await partition_page(kernel, kernel.topics.get(name), page))
        body = await read_body(request, PartitionCount)
        with changes(kernel, request, "topic.add_partitions", topic_text(name)):
            await kernel.topics.add_partitions(name, body.total)
        return JSONResponse(_summary(kernel.topics.get(name)))

    return [
        Route("/topics", list_or_create, methods=["GET", "POST"]),
        Route("/topics/{topic}", describe_or_delete, methods=["GET", "DELETE"]),
        Route("/topics/{topic}/configs", alter, methods=["PATCH"]),
        Route("/topics/{topic}/partitions", partitions, methods=["GET", "POST"]),
    ]


async def _create(kernel: Kernel, request: Request) -> Response:
    body = await read_body(request, NewTopic)
    name = TopicName(namespace_of(request), check_topic_name(body.name))
    dry = body.validate_only
    with nullcontext() if dry else changes(kernel, request, "topic.create", topic_text(name)):
        topic = await kernel.topics.create(
            name, partitions=body.partitions, configs=body.configs, validate_only=dry
        )
    return JSONResponse(_summary(topic), status_code=200 if body.validate_only else 201)


def _summary(topic: Topic) -> dict[str, Any]:
    return {
        "namespace": topic.name.namespace,
        "name": topic.name.name,
        "uuid": str(topic.uuid),
        "partitions": len(topic.partition_ids),
        "is_internal": topic.is_internal,
        "configs_set": dict(topic.configs),
    }


def _elsewhere(kernel: Kernel, topic: Topic, number: int) -> dict[str, Any]:
    """Return a partition of another node: its numbers, and the node; null while nobody owns it."""
    owner = kernel.placement.owner(shard_of(topic, number, kernel.placement))
    return {
        "number": number,
        "partition_id": topic.partition_ids[number],
        "owner": None if owner is None else owner.node_id,
    }


def _details(kernel: Kernel, topic: Topic) -> dict[str, Any]:
    partitions = []
    for number in range(len(topic.partition_ids)):
        if not kernel.broker.owns(topic, number):
            partitions.append(_elsewhere(kernel, topic, number))
            continue
        partition = kernel.broker.partition(topic, number)
        partitions.append(
            {
                "number": number,
                "partition_id": partition.partition_id,
                "log_start_offset": partition.log_start_offset,
                "high_watermark": partition.high_watermark,
                "stable_end": partition.stable_end,
                "log_end_offset": partition.log_end_offset,
                "size_bytes": kernel.broker.size_bytes(partition),
                "holders": [
                    {
                        "name": hold.name,
                        "kind": str(hold.kind),
                        "offset": hold.offset,
                        "behind": max(partition.high_watermark - hold.offset, 0),
                    }
                    for hold in kernel.broker.retention_holds(partition.partition_id)
                ],
            }
        )
    return {
        **_summary(topic),
        "partitions": partitions,
        "configs": _configs(kernel, topic),
    }


def _configs(kernel: Kernel, topic: Topic) -> list[dict[str, Any]]:
    return [
        {"name": entry.name, "value": entry.value, "is_default": entry.is_default}
        for entry in kernel.topics.describe_configs(topic)
    ]
