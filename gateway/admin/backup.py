"""REST for backups: ``POST /v1/backup`` starts one, ``GET`` returns its progress."""

from pathlib import Path
from typing import Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import read_body
from gateway.admin.state import AdminState
from gateway.backup.create import Backups
from gateway.config.base import FrozenConfig

WAIT_S_MAX: Final = 10


class NewBackup(FrozenConfig):
    """Body of the call: absolute path of the folder on the node's machine."""

    target: str = Field(min_length=1)


def routes(state: AdminState) -> list[Route]:
    """Return the routes; ``GET /v1/backup?wait=true`` answers at its end, or after 10 s."""
    backups = Backups()

    async def start(request: Request) -> Response:
        body = await read_body(request, NewBackup)
        backups.start(state.running(), Path(body.target))
        return JSONResponse(_content(backups), status_code=202)

    async def show(request: Request) -> Response:
        if request.query_params.get("wait") == "true":
            await backups.wait(WAIT_S_MAX)
        return JSONResponse(_content(backups))

    return [
        Route("/backup", start, methods=["POST"]),
        Route("/backup", show, methods=["GET"]),
    ]


def _content(backups: Backups) -> dict[str, object]:
    return {
        "state": backups.state.value,
        "target": None if backups.target is None else str(backups.target),
        "error": backups.error,
        "files": backups.files,
        "total_bytes": backups.total_bytes,
        "checked_bytes": backups.checked_bytes,
    }
