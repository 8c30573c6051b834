"""Web pages that may connect to the WebSocket listener: by their Origin, and the Host they call."""

from adapters.mqtt.config import WebSocketConfig
from gateway.http_origin import is_foreign_origin, is_known_host


def refusal_of(
    config: WebSocketConfig,
    *,
    origin: str | None,
    host: str | None,
    is_login_required: bool,
) -> str | None:
    """Return why the listener refuses a request with these headers, or None.

    A request without an Origin is no browser's; only its Host is judged.
    """
    if config.origins:
        is_foreign = origin is not None and origin not in config.origins
    else:
        is_foreign = is_foreign_origin(origin, host)
    if is_foreign:
        return "the page's origin is not in adapters.mqtt.websocket.origins"
    is_anonymous = not is_login_required and config.tls_client_ca is None
    if is_anonymous and not is_known_host(host, config.hosts):
        return "the name is not in adapters.mqtt.websocket.hosts"
    return None
