"""REST for queues: ``/v1/queues`` and below.

``?namespace=`` names another namespace than the default one, ``?group=`` another queue group.
``?limit=`` asks for a page (``gateway.admin.paging``).
"""

from typing import Any

from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.paging import page_of
from gateway.admin.queue_pages import QUEUE_SORTS, message_page, queue_page
from gateway.admin.queue_views import purge_queue, queue_details, queue_of, queue_summary
from gateway.admin.requests import changes, check_may, namespace_of, read_body
from gateway.admin.state import AdminState
from gateway.auth.audit import topic_text
from gateway.auth.ports import Operation
from gateway.config.base import FrozenConfig
from gateway.errors import InvalidRequest
from gateway.kernel import Kernel
from gateway.model import TopicName, check_topic_name
from gateway.queues.create_queue import check_order, make_queue
from gateway.queues.manager import Queue
from gateway.queues.model import DEFAULT_GROUP, QueueSettings

Values = dict[str, str | int | None]


class NewQueue(FrozenConfig):
    """Body of ``POST /v1/queues``; null or missing settings have their defaults."""

    name: str
    group: str = Field(default=DEFAULT_GROUP, min_length=1, max_length=255)
    partitions: int | None = Field(default=None, ge=1)
    from_start: bool = False
    settings: Values = Field(default_factory=dict)
    tags: dict[str, str] = Field(default_factory=dict)


class QueueChanges(FrozenConfig):
    """Body of ``PATCH /v1/queues/<name>``; null restores a setting's default."""

    settings: Values


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/queues``."""

    async def list_or_create(request: Request) -> Response:
        kernel = state.running()
        if request.method == "POST":
            body = await read_body(request, NewQueue)
            name = TopicName(namespace_of(request), check_topic_name(body.name))
            with changes(kernel, request, "queue.create", topic_text(name)):
                queue = await _create(kernel, name, body)
            return JSONResponse(await queue_details(kernel, queue), 201)
        page, queues = (
            page_of(request, QUEUE_SORTS),
            kernel.queues.queues(namespace_of(request)),
        )
        if page is not None:
            return JSONResponse(await queue_page(kernel, queues, page))
        return JSONResponse({"queues": [await queue_summary(kernel, one) for one in queues]})

    async def one(request: Request) -> Response:
        kernel, queue = state.running(), queue_of(state.running(), request)
        name = topic_text(queue.name)
        if request.method == "DELETE":
            with changes(kernel, request, "queue.delete", name):
                await kernel.queues.delete(queue)
            return Response(status_code=204)
        if request.method == "PATCH":
            body = await read_body(request, QueueChanges)
            with changes(kernel, request, "queue.alter", name):
                changed = _settings(kernel, queue.name, queue.settings, body.settings)
                await kernel.queues.alter(queue, settings=changed)
        return JSONResponse(await queue_details(kernel, queue))

    async def purge(request: Request) -> Response:
        kernel = state.running()
        queue = queue_of(kernel, request)
        with changes(kernel, request, "queue.purge", topic_text(queue.name)):
            await purge_queue(kernel, queue)
        return Response(status_code=204)

    async def messages(request: Request) -> Response:
        kernel = state.running()
        queue = queue_of(kernel, request)
        check_may(kernel, request, Operation.READ, queue.name)
        return JSONResponse(await message_page(kernel, queue, request))

    return [
        Route("/queues", list_or_create, methods=["GET", "POST"]),
        Route("/queues/{queue}", one, methods=["GET", "PATCH", "DELETE"]),
        Route("/queues/{queue}/messages", messages, methods=["GET"]),
        Route("/queues/{queue}/purge", purge, methods=["POST"]),
    ]


async def _create(kernel: Kernel, name: TopicName, body: NewQueue) -> Queue:
    return await make_queue(
        kernel.queues,
        kernel.topics,
        name,
        _settings(kernel, name, QueueSettings(), body.settings),
        group=body.group,
        partitions=body.partitions,
        from_start=body.from_start,
        tags=body.tags,
    )


def _settings(
    kernel: Kernel, name: TopicName, settings: QueueSettings, changes: Values
) -> QueueSettings:
    """Return a queue's settings with changes.

    Errors: ``InvalidRequest``, also for a dead-letter topic that is not there, since messages
    would then neither be delivered nor be dead.
    """
    kept: dict[str, Any] = {**settings.model_dump(exclude_defaults=True), **changes}
    wanted = {name: value for name, value in kept.items() if value is not None}
    try:
        changed = QueueSettings.model_validate(wanted)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        where = ".".join(map(str, detail["loc"]))
        if detail["type"] == "extra_forbidden":
            there = ", ".join(QueueSettings.model_fields)
            raise InvalidRequest(f"{where[:80]!r} is no setting; there are: {there}") from error
        raise InvalidRequest(f"{where}: {detail['msg']}") from error
    check_order(name, changed)
    if changed.dead_letter_topic and changed.dead_letter_exchange:
        raise InvalidRequest("dead_letter_topic and dead_letter_exchange: only one of them")
    _check_dead_letter_topic(kernel, name, changed.dead_letter_topic)
    return changed


def _check_dead_letter_topic(kernel: Kernel, name: TopicName, dead: str) -> None:
    if not dead:
        return
    topic = kernel.topics.find(TopicName(name.namespace, dead))
    if topic is None:
        raise InvalidRequest(f"dead_letter_topic: no topic {dead[:249]!r}; create that first")
    if topic.is_internal or topic.name == name:
        raise InvalidRequest("dead_letter_topic: is internal, or the queue's own")
