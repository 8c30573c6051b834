"""REST for the node itself and its connections."""

import os
import shutil

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.admin.live import resident_bytes
from gateway.admin.state import AdminState
from gateway.installation import installed_version


def routes(state: AdminState) -> list[Route]:
    """Return ``GET node`` and ``GET clients``."""

    async def node(_: Request) -> Response:
        return JSONResponse(_node(state))

    async def clients(_: Request) -> Response:
        return JSONResponse(
            {
                "clients": [
                    {"protocol": name, **connection}
                    for name, adapter in sorted(state.adapters.items())
                    for connection in adapter.connections()
                ]
            }
        )

    return [Route("/node", node), Route("/clients", clients)]


def _node(state: AdminState) -> dict[str, object]:
    kernel = state.running()
    disk = shutil.disk_usage(kernel.settings.node.data_dir)
    return {
        "node_id": kernel.placement.node_id,
        "cluster_id": kernel.placement.cluster_id,
        "version": installed_version(),
        "pid": os.getpid(),
        "data_dir": str(kernel.settings.node.data_dir.absolute()),
        "storage": kernel.settings.storage.adapter,
        "uptime_ms": state.uptime_ms(),
        "disk": {"total_bytes": disk.total, "free_bytes": disk.free},
        "resident_bytes": resident_bytes(),
        "is_ready": state.is_ready,
        "authentication_required": kernel.authenticator.required,
        "endpoints": [
            {"protocol": name, **endpoint._asdict()}
            for name, adapter in sorted(state.adapters.items())
            for endpoint in adapter.endpoints()
        ],
    }
