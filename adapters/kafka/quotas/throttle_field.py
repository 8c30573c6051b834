"""Place of ``throttle_time_ms`` in encoded responses.

Most responses begin with it. A body is changed where it has left the encoder, so that requests
without a quota pay nothing.
"""

from collections.abc import Mapping
from typing import Final

from adapters.kafka.codec import API_VERSIONS, API_VERSIONS_FLEXIBLE, I32
from gateway.model import Buffer, decode_uvarint

_NO_FIELD: Final = frozenset({17, 27, 36, 55})
"""SaslHandshake, WriteTxnMarkers, SaslAuthenticate, DescribeQuorum."""
_SINCE: Final[Mapping[int, int]] = {
    1: 1, 2: 2, 3: 3, 8: 3, 9: 3, 10: 1, 11: 2, 12: 1, 13: 1, 14: 1, 15: 1, 16: 1, 18: 1,
    19: 2, 20: 1, 23: 2,
}  # fmt: skip
"""First version with the field, of APIs that had versions without it."""
_PRODUCE: Final = 0
_OFFSET_DELETE: Final = 47
_CODE_BYTES: Final = 2
_API_BYTES: Final = 6


def place_throttle(api_key: int, version: int, pieces: list[Buffer], throttle_ms: int) -> None:
    """Write a throttle time into a response's pieces, if it has one.

    The first piece is replaced. Produce has it at its end, and its encoder writes it.
    """
    if not throttle_ms or api_key == _PRODUCE:
        return
    at = field_at(api_key, version, pieces[0])
    if at is not None:
        head = bytearray(pieces[0])
        I32.pack_into(head, at, throttle_ms)
        pieces[0] = head


def field_at(api_key: int, version: int, body: Buffer) -> int | None:
    """Return the index of the field in a body; None for a version without it."""
    if api_key in _NO_FIELD or version < _SINCE.get(api_key, 0):
        return None
    if api_key == _OFFSET_DELETE:
        return _CODE_BYTES
    if api_key == API_VERSIONS:
        return _behind_apis(version, body)
    return 0


def _behind_apis(version: int, body: Buffer) -> int:
    """Return the index behind the error code and the list of APIs."""
    if version < API_VERSIONS_FLEXIBLE:
        (count,) = I32.unpack_from(body, _CODE_BYTES)
        return _CODE_BYTES + I32.size + int(count) * _API_BYTES
    count, at = decode_uvarint(body, _CODE_BYTES)
    return at + (count - 1) * (_API_BYTES + 1)  # each ends with its tagged fields
