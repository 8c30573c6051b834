"""The API of a request, and its codec: the handler's own, or the schema codec."""

from types import ModuleType
from typing import Any

from adapters.kafka.codec import API_VERSIONS, RequestHeader
from adapters.kafka.codecs import schema_codec
from adapters.kafka.handlers import APIS, Api
from adapters.kafka.session import Session
from gateway.errors import PeerError
from gateway.model import Buffer


def find_api(header: RequestHeader, session: Session) -> Api:
    """Return the API of a request.

    Error: ``PeerError`` for an API or a version that is not served, or that needs a login first;
    also after the end of a login (KIP-368), but for the APIs of a new one.
    ApiVersions is returned for any version, because it answers an unknown one (KIP-511).
    """
    api = APIS.get(header.api_key)
    if api is None:
        msg = f"API key {header.api_key} is not served"
        raise PeerError(msg)
    if header.version not in api.versions and api.key != API_VERSIONS:
        msg = f"{api.name} version {header.version} is not served"
        raise PeerError(msg)
    if not (session.is_authenticated or api.before_authentication):
        msg = f"{api.name} before authentication"
        raise PeerError(msg)
    if session.ends_unix_ms and not api.before_authentication and session.has_ended:
        msg = f"{api.name} after the end of the login"
        raise PeerError(msg)
    return api


def decode_body(
    module: ModuleType, api: Api, version: int, body: memoryview, elements_max: int
) -> Any:  # noqa: ANN401 - each API has its own
    """Return the request by the handler's own ``decode`` where it has one, else by schema.

    Errors: ``PeerError``; ``TooManyElements`` above ``elements_max``.
    """
    decode = getattr(module, "decode", None)
    if decode is None:
        return schema_codec.decode_request(api.key, version, body, elements_max)
    return decode(version, body, elements_max)


def encode_body(response: Any, version: int) -> Buffer:  # noqa: ANN401 - generated classes
    """Return a response's bytes: as they are, or of a message object by its schema."""
    if isinstance(response, bytes | bytearray):
        return response
    return schema_codec.encode_response(response, version)
