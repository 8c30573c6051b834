"""REST for scrubs: ``POST /v1/scrub`` starts a pass, ``GET`` returns its findings."""

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.requests import read_body
from gateway.admin.state import AdminState
from gateway.config.base import FrozenConfig
from gateway.kernel import Kernel
from gateway.upkeep.scrub import Scrub

WAITS_S = {"true": 10, "1": 1}


class NewScrub(FrozenConfig):
    """Body of the call: bytes to read per second."""

    bytes_per_s: int = Field(ge=4_096)


def routes(state: AdminState) -> list[Route]:
    """Return the routes; ``?wait=true`` answers at the end, or after 10 s, ``?wait=1`` after one.

    The answer to ``POST`` has ``total_bytes``: what there is to read, as far as it is known then.
    """

    async def start(request: Request) -> Response:
        body = await read_body(request, NewScrub)
        kernel = state.running()
        kernel.scrub.begin(bytes_per_s=body.bytes_per_s)
        content = {**_content(kernel.scrub), "total_bytes": _stored_bytes(kernel)}
        return JSONResponse(content, status_code=202)

    async def show(request: Request) -> Response:
        scrub = state.running().scrub
        wait_s = WAITS_S.get(request.query_params.get("wait", ""))
        if wait_s is not None:
            await scrub.wait(wait_s)
        return JSONResponse(_content(scrub))

    return [
        Route("/scrub", start, methods=["POST"]),
        Route("/scrub", show, methods=["GET"]),
    ]


def _stored_bytes(kernel: Kernel) -> int:
    topics = kernel.topics.everything()
    return sum(sum(map(kernel.broker.stored_bytes, one.partition_ids)) for one in topics)


def _content(scrub: Scrub) -> dict[str, object]:
    return {
        "state": scrub.state.value,
        "checked_bytes": scrub.pass_bytes,
        "error": scrub.error,
        "damages_count": scrub.damages_count,
        "damages": [damage._asdict() for damage in scrub.damages],
        "unread": [one._asdict() for one in scrub.unread],
    }
