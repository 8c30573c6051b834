"""ApiVersions: API key 18, versions 0 to 4. The response header is always version 0 (KIP-511).

v1  throttle_time_ms
v3  flexible; the client's software name and version, ignored
v4  features with a lowest version of 0; none

Three features are finalized (KIP-584): ``transaction.version``, from whose level 2 on clients
use the second version of the transaction protocol (KIP-890), ``group.version`` (KIP-848), and
``share.version`` (KIP-932).
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


def handle(request: None, session: Session, version: int) -> bytes:  # noqa: ARG001 - ignored
    """Return the served APIs and their versions."""
    return _encoded(version, ErrorCode.NONE, session.node.settings.transactions.protocol)


def unsupported_version() -> bytes:
    """Return the response to an unknown version: encoded as version 0, so that clients retry."""
    return _encoded(0, ErrorCode.UNSUPPORTED_VERSION, 0)


@cache
def _encoded(version: int, code: ErrorCode, transaction_version: int) -> bytes:
    apis = [
        (key, ADVERTISED_FROM.get(key, api.versions[0]), api.versions[-1])
        for key, api in sorted(APIS.items())
    ]
    features = {
        "transaction.version": transaction_version,
        "group.version": 1,
        "share.version": 1,
    }
    return encode_api_versions_response(version, code, apis, features)
