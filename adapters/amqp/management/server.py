"""Listener of the HTTP API. The application is loaded at its first request."""

from starlette.types import ASGIApp, Receive, Scope, Send

from adapters.amqp.config import ManagementConfig
from adapters.amqp.management.endpoint import AmqpEndpoint
from gateway.config.base import Address, parse_address
from gateway.http_server import HttpBounds, HttpServer
from gateway.proxy_handshake import make_tls_context


class ManagementServer:
    """HTTP server of the API."""

    def __init__(self, config: ManagementConfig, endpoint: AmqpEndpoint) -> None:
        self._config = config
        bounds = HttpBounds(config.connections_max, config.frame_s_max)
        self._server = HttpServer(
            parse_address(config.bind), bounds, tls=make_tls_context(config)
        )
        self._app = _LateApi(endpoint, config.body_bytes_max)

    @property
    def address(self) -> Address:
        """Address of the endpoint on this machine, with the port that the system chose."""
        return self._server.address

    @property
    def url(self) -> str:
        """URL of the API."""
        scheme = "https" if self._config.tls_cert is not None else "http"
        return f"{scheme}://{self.address}"

    async def start(self) -> None:
        """Listen. Error: ``OSError``, with the address, when it cannot be had."""
        try:
            await self._server.start(self._app)
        except OSError as error:
            error.filename = self._config.bind
            raise

    async def stop(self) -> None:
        """Answer open requests, for a short while, and close the port."""
        await self._server.stop()


class _LateApi:
    """The application, loaded when it is asked for first: an idle node does not pay for it."""

    def __init__(self, endpoint: AmqpEndpoint, body_bytes_max: int) -> None:
        self._endpoint = endpoint
        self._body_bytes_max = body_bytes_max
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._app is None:
            from adapters.amqp.management.app import ManagementApi

            self._app = ManagementApi(self._endpoint, self._body_bytes_max)
        await self._app(scope, receive, send)
