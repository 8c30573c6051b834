"""Admin HTTP endpoint.

It starts before everything else, so that ``/healthz`` and ``/readyz`` answer while logs are
being read.
"""

from pathlib import Path
from typing import Final

from gateway.admin.app import build_app
from gateway.admin.state import AdminState
from gateway.admin.token import ensure_token, remove_url, write_url
from gateway.config.advice import cannot_listen
from gateway.config.base import InvalidSettings, parse_address
from gateway.config.settings import AdminConfig
from gateway.http_server import HttpBounds, HttpServer

CONNECTIONS_MAX: Final = 64
REQUEST_S_MAX: Final = 30


class AdminServer:
    """HTTP server of the admin endpoint, over the node's ``state``."""

    def __init__(self, config: AdminConfig, state: AdminState, *, data_dir: Path) -> None:
        self._bind = config.bind
        self._hosts = config.hosts
        self._data_dir = data_dir
        self._state = state
        bounds = HttpBounds(CONNECTIONS_MAX, REQUEST_S_MAX)
        self._server = HttpServer(parse_address(config.bind), bounds)

    @property
    def url(self) -> str:
        """URL of the endpoint on this machine, with the port that the system chose."""
        return f"http://{self._server.address}"

    async def start(self) -> None:
        """Listen. Errors: ``InvalidSettings`` when the address cannot be taken."""
        app = build_app(self._state, ensure_token(self._data_dir), self._hosts)
        try:
            await self._server.start(app)
        except OSError as error:
            bind = str(parse_address(self._bind))
            raise InvalidSettings(cannot_listen("admin.bind", bind, error)) from error
        self._state.on_ready_changed = self._publish

    async def stop(self) -> None:
        """Answer open requests, for a short while, and close the port."""
        await self._server.stop()
        self._state.on_ready_changed = None

    def _publish(self) -> None:
        """Write the endpoint's address for the commands, while the node is ready.

        Not before: until the storage is locked, another node may be at work in this folder.
        """
        if self._state.is_ready:
            write_url(self._data_dir, self.url)
        else:
            remove_url(self._data_dir)
