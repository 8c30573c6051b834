"""Receipt handles: which delivery of which message, signed, so that none can be made up.

A handle is 60 characters of base64: of the topic's uuid the first 8 octets, partition number
(u32), offset (u64), attempt (u32), when it was received (u64, unix ms), and 13 octets of a MAC
(BLAKE2b with the node's secret; 1 us). Nothing is kept for it: the moment of the receive, from
which the 12 hours of visibility count, is in it.
"""

import binascii
import struct
from binascii import a2b_base64 as _from_base64
from binascii import b2a_base64 as _to_base64
from hashlib import blake2b
from hmac import compare_digest
from typing import Final, NamedTuple
from uuid import UUID

from adapters.sqs.errors import RECEIPT_HANDLE_IS_INVALID, SqsError
from adapters.sqs.text import quote
from gateway.queue_model import DeliveryId

HANDLE_CHARS: Final = 60
SECRET_BYTES: Final = 32

_FIELDS: Final = struct.Struct(">8sIQIQ")
_MAC_BYTES: Final = 13
_PREFIX_BYTES: Final = 8


class Receipt(NamedTuple):
    """What a handle says: the delivery, and when it was received."""

    delivery_id: DeliveryId
    received_unix_ms: int


def encode(  # noqa: PLR0917 - the fields of a handle, in their order; called per message
    secret: bytes,
    topic_uuid: UUID,
    number: int,
    offset: int,
    attempt: int,
    received_unix_ms: int,
) -> str:
    """Return the handle of a delivery. ``secret``: up to 64 octets."""
    fields = _FIELDS.pack(
        topic_uuid.bytes[:_PREFIX_BYTES], number, offset, attempt, received_unix_ms
    )
    mac = blake2b(fields, digest_size=_MAC_BYTES, key=secret).digest()
    return _to_base64(fields + mac, newline=False).decode()


def decode(secret: bytes, topic_uuid: UUID, handle: str) -> Receipt:
    """Return what a handle of that topic's queue says.

    Error: ``SqsError`` (ReceiptHandleIsInvalid) for one that is forged, of another queue or of a
    queue that had the name before.
    """
    octets = _decode_base64(handle)
    if octets is not None:
        fields = octets[: _FIELDS.size]
        mac = blake2b(fields, digest_size=_MAC_BYTES, key=secret).digest()
        if compare_digest(octets[_FIELDS.size :], mac):
            prefix, number, offset, attempt, received_unix_ms = _FIELDS.unpack(fields)
            if prefix == topic_uuid.bytes[:_PREFIX_BYTES]:
                return Receipt(DeliveryId(number, offset, attempt), received_unix_ms)
    raise SqsError(
        RECEIPT_HANDLE_IS_INVALID,
        f'The input receipt handle "{quote(handle)}" is not a valid receipt handle.',
    )


def _decode_base64(handle: str) -> bytes | None:
    """Return the octets of a handle, or None for what cannot be one."""
    if len(handle) != HANDLE_CHARS or not handle.isascii():
        return None
    try:
        return _from_base64(handle, strict_mode=True)
    except binascii.Error:
        return None
