"""REST for scrubs: ``POST /v1/scrub`` starts a pass, ``GET`` returns its findings."""

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import read_body
from gateway.admin.state import AdminState
from gateway.config.base import FrozenConfig
from gateway.upkeep.scrub import Scrub

WAIT_S_MAX = 10


class NewScrub(FrozenConfig):
    """Body of the call: bytes to read per second."""

    bytes_per_s: int = Field(ge=4_096)


def routes(state: AdminState) -> list[Route]:
    """Return the routes; ``GET /v1/scrub?wait=true`` answers at its end, or after 10 s."""

    async def start(request: Request) -> Response:
        body = await read_body(request, NewScrub)
        scrub = state.running().scrub
        scrub.begin(bytes_per_s=body.bytes_per_s)
        return JSONResponse(_content(scrub), status_code=202)

    async def show(request: Request) -> Response:
        scrub = state.running().scrub
        if request.query_params.get("wait") == "true":
            await scrub.wait(WAIT_S_MAX)
        return JSONResponse(_content(scrub))

    return [
        Route("/scrub", start, methods=["POST"]),
        Route("/scrub", show, methods=["GET"]),
    ]


def _content(scrub: Scrub) -> dict[str, object]:
    return {
        "state": scrub.state.value,
        "checked_bytes": scrub.pass_bytes,
        "error": scrub.error,
        "damages_count": scrub.damages_count,
        "damages": [damage._asdict() for damage in scrub.damages],
        "unread": [one._asdict() for one in scrub.unread],
    }
