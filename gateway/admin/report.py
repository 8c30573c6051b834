"""REST for the last report of a Spark job: ``GET /v1/report``."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.state import AdminState
from gateway.last_report import read_last_report


def routes(state: AdminState) -> list[Route]:
    """Return the route; ``report`` is null where no job has left one."""

    async def report(_: Request) -> Response:
        found = read_last_report(state.running().settings.node.data_dir)
        return JSONResponse({"report": found})

    return [Route("/report", report, methods=["GET"])]
