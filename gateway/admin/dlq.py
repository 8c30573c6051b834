"""REST for dead letters: ``/v1/dlq`` and below.

A dead-letter queue is one whose topic some queue names as its ``dead_letter_topic``, or that
holds what was moved there when one did; any queue may be looked at and redriven.
"""

from typing import Any, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.queue_pages import reasons_of, redrive_preview
from gateway.admin.queue_views import letters_of, purge_queue, queue_of, queue_summary
from gateway.admin.requests import check_may, namespace_of, read_body
from gateway.admin.state import AdminState
from gateway.auth.ports import Operation
from gateway.config.base import FrozenConfig
from gateway.errors import InvalidRequest, PolicyViolation
from gateway.kernel import Kernel
from gateway.model import TopicName, check_topic_name
from gateway.queues.queue import Queue
from gateway.queues.redrive import Redrive

COUNT_MAX: Final = 1_000


class NewRedrive(FrozenConfig):
    """Body of ``POST /v1/dlq/<name>/redrives``; without a destination, to each one's source."""

    destination: str | None = None
    rate_per_s: int | None = Field(default=None, ge=1)


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/dlq``."""

    async def list_all(request: Request) -> Response:
        kernel, namespace = state.running(), namespace_of(request)
        return JSONResponse({"dlqs": await _dead_letter_queues(kernel, namespace)})

    async def redrives(request: Request) -> Response:
        kernel, queue = state.running(), queue_of(state.running(), request)
        if request.method == "POST":
            body = await read_body(request, NewRedrive)
            destination = None
            if body.destination is not None:
                name = check_topic_name(body.destination)
                destination = TopicName(namespace_of(request), name)
                _check_destination(kernel, queue, destination)
            begun = kernel.queues.redrives.start(
                queue, destination=destination, rate_per_s=body.rate_per_s
            )
            return JSONResponse(_redrive(kernel, begun), 202)
        found = kernel.queues.redrives.of(queue)
        return JSONResponse({"redrives": [_redrive(kernel, one) for one in found]})

    async def cancel(request: Request) -> Response:
        kernel, queue = state.running(), queue_of(state.running(), request)
        running = [one for one in kernel.queues.redrives.of(queue) if one.is_active]
        if not running:
            raise PolicyViolation(f"no redrive of {queue.name.name} is running")
        kernel.queues.redrives.cancel(running[0].handle)
        return JSONResponse(_redrive(kernel, running[0]))

    async def purge(request: Request) -> Response:
        kernel = state.running()
        await purge_queue(kernel, queue_of(kernel, request))
        return Response(status_code=204)

    return [
        Route("/dlq", list_all, methods=["GET"]),
        *_looks(state),
        Route("/dlq/{queue}/redrives", redrives, methods=["GET", "POST"]),
        Route("/dlq/{queue}/redrives/cancel", cancel, methods=["POST"]),
        Route("/dlq/{queue}/purge", purge, methods=["POST"]),
    ]


def _looks(state: AdminState) -> list[Route]:
    """Return the routes that change nothing."""

    async def messages(request: Request) -> Response:
        kernel = state.running()
        queue, count = (
            queue_of(kernel, request),
            _count(request.query_params.get("count", "100")),
        )
        check_may(kernel, request, Operation.READ, queue.name)
        return JSONResponse(await letters_of(kernel, queue, count))

    async def reasons(request: Request) -> Response:
        kernel = state.running()
        return JSONResponse(await reasons_of(kernel, queue_of(kernel, request)))

    async def preview(request: Request) -> Response:
        kernel = state.running()
        return JSONResponse(await redrive_preview(kernel, queue_of(kernel, request), request))

    return [
        Route("/dlq/{queue}/messages", messages, methods=["GET"]),
        Route("/dlq/{queue}/reasons", reasons, methods=["GET"]),
        Route("/dlq/{queue}/redrive-preview", preview, methods=["GET"]),
    ]


def _check_destination(kernel: Kernel, source: Queue, destination: TopicName) -> None:
    """Check the destination of a redrive. Errors: ``PolicyViolation``, ``TopicNotFound``."""
    if destination == source.topic.name:
        # They would lose where they came from, and could not go there any more.
        raise PolicyViolation(f"the messages of {destination.name} are there already")
    if kernel.topics.get(destination).is_internal:
        raise PolicyViolation(f"{destination.name} is the node's own topic")


async def _dead_letter_queues(kernel: Kernel, namespace: str) -> list[dict[str, Any]]:
    """Return the dead-letter queues, and the dead-letter topics that have no queue."""
    sources: dict[str, list[str]] = {}
    for queue in kernel.queues.queues(namespace):
        if queue.settings.dead_letter_topic:
            sources.setdefault(queue.settings.dead_letter_topic, []).append(queue.name.name)
    found = []
    for name in sorted(sources):
        target = kernel.queues.find(TopicName(namespace, name))
        summary: dict[str, Any] = {"name": name, "counts": None, "oldest_age_ms": None}
        if target is not None:
            summary = await queue_summary(kernel, target)
        found.append({**summary, "sources": sorted(sources[name])})
    return found


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= COUNT_MAX):
        raise InvalidRequest(f"count: 1 to {COUNT_MAX}, not {text[:80]!r}")
    return int(text)


def _redrive(kernel: Kernel, redrive: Redrive) -> dict[str, Any]:
    destination = redrive.destination
    return {
        "handle": redrive.handle,
        "status": redrive.status,
        "moved": redrive.moved,
        "skipped": redrive.skipped,
        "total_at_start": redrive.total_at_start,
        "destination": None if destination is None else destination.name,
        "rate_per_s": redrive.rate_per_s,
        "failure": redrive.failure,
        "started_unix_ms": redrive.started_unix_ms,
        "age_ms": max(0, kernel.clock.unix_ms() - redrive.started_unix_ms),
    }
