"""ApiVersions: API key 18, versions 0 to 4. The response header is always version 0 (KIP-511).

v1  throttle_time_ms
v3  flexible; the client's software name and version, ignored
v4  features; none, so that version 2 of transactions stays off (KIP-890)
"""

from functools import cache
from typing import Final

from adapters.kafka.codec import encode_api_versions_response
from adapters.kafka.errors import ErrorCode
from adapters.kafka.handlers import ADVERTISED_FROM, APIS
from adapters.kafka.session import Session

API_KEY: Final = 18
VERSIONS: Final = range(5)


def decode(version: int, body: memoryview, elements_max: int = 0) -> None:
    """Return None: the fields of the request are ignored."""


def handle(request: None, session: Session, version: int) -> bytes:  # noqa: ARG001 - all alike
    """Return the served APIs and their versions."""
    return _encoded(version, ErrorCode.NONE)


def unsupported_version() -> bytes:
    """Return the response to an unknown version: encoded as version 0, so that clients retry."""
    return _encoded(0, ErrorCode.UNSUPPORTED_VERSION)


@cache
def _encoded(version: int, code: ErrorCode) -> bytes:
    apis = [
        (key, ADVERTISED_FROM.get(key, api.versions[0]), api.versions[-1])
        for key, api in sorted(APIS.items())
    ]
    return encode_api_versions_response(version, code, apis)
