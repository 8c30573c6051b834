"""Error responses of APIs that are neither served nor advertised.

A client that ignores ApiVersions receives UNSUPPORTED_VERSION instead of a closed connection for
UpdateFeatures. The responses of all other APIs have no top-level error code, or the APIs are for
brokers.
"""

from struct import Struct
from typing import Final, NamedTuple

from adapters.kafka.errors import ErrorCode

_HEAD: Final = Struct(">ih")  # throttle time, error code
_NO_TAGS: Final = b"\x00"
_NULL: Final = b"\x00"
_EMPTY: Final = b"\x01"


class _Unserved(NamedTuple):
    """An API: its versions that have a top-level error, and the first flexible one."""

    versions: range
    flexible_from: int
    tails: dict[int, bytes]  # what follows the error code, from a version on


_APIS: Final = {
    57: _Unserved(range(3), 0, {0: _NULL + _EMPTY, 2: _NULL}),  # message, results until v1
}


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether headers of this version end with tagged fields.

    >>> is_flexible(57, 0), is_flexible(100, 0)
    (True, False)
    """
    api = _APIS.get(api_key)
    return api is not None and version >= api.flexible_from


def answer(api_key: int, version: int) -> bytes | None:
    r"""Return the body of an error response, None where the protocol has none.

    >>> answer(57, 2), answer(100, 0)
    (b'\x00\x00\x00\x00\x00#\x00\x00', None)
    """
    api = _APIS.get(api_key)
    if api is None or version not in api.versions:
        return None
    tail = api.tails[max(first for first in api.tails if first <= version)]
    body = _HEAD.pack(0, ErrorCode.UNSUPPORTED_VERSION) + tail
    return body + _NO_TAGS if version >= api.flexible_from else body
