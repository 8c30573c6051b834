"""REST for the node's document: ``/v1/deployment``.

``GET`` exports it, ``POST`` makes the node as a document says or shows what that would change, and
``GET /v1/deployment/drift`` compares the node with its config file.
"""

from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import DOCUMENT_BYTES_MAX, changes, namespace_of, read_body
from gateway.admin.state import AdminState
from gateway.config.base import FrozenConfig
from gateway.deployment.carry_out import carry_out
from gateway.deployment.current import current
from gateway.deployment.document import Document
from gateway.deployment.plan import Action, PlannedChange, plan
from gateway.deployment.start import drift


class Application(FrozenConfig):
    """Body of ``POST /v1/deployment``.

    ``mode``: ``create`` makes what is missing, ``enforce`` also changes what differs.
    """

    document: Document
    mode: Literal["create", "enforce"] = "enforce"
    dry_run: bool = False


def routes(state: AdminState) -> list[Route]:
    """Return the routes below ``/v1/deployment``."""

    async def export(request: Request) -> Response:
        secrets = request.query_params.get("secrets") == "true"
        found = current(state.running(), namespace_of(request), secrets=secrets, whole=False)
        content = found.model_dump(mode="json", exclude_defaults=True)
        return JSONResponse({"document": content})

    async def apply(request: Request) -> Response:
        kernel, namespace = state.running(), namespace_of(request)
        body = await read_body(request, Application, bytes_max=DOCUMENT_BYTES_MAX)
        there = current(kernel, namespace, secrets=True)
        planned = plan(there, body.document, enforces=body.mode == "enforce")
        if body.dry_run or not planned:
            return JSONResponse({"changes": [_view(one) for one in planned]})
        with changes(kernel, request, "deployment.apply", namespace):
            outcomes = await carry_out(kernel, namespace, planned)
        return JSONResponse({"changes": [_view(one, error) for one, error in outcomes]})

    async def compare(_: Request) -> Response:
        return JSONResponse({"changes": [_view(one) for one in drift(state.running())]})

    return [
        Route("/deployment", export, methods=["GET"]),
        Route("/deployment", apply, methods=["POST"]),
        Route("/deployment/drift", compare, methods=["GET"]),
    ]


def _view(change: PlannedChange, error: str = "") -> dict[str, Any]:
    details = list(change.details)
    if change.action is Action.DELETE:
        details.append("with all that is in it")
    return {
        "action": change.action.value,
        "kind": change.kind,
        "name": change.name,
        "details": details,
        "error": error,
    }
