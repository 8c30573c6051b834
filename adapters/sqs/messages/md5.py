"""MD5 digests of bodies and attributes, by which clients verify messages.

Digest of attributes (Amazon SQS Developer Guide, "Calculating the MD5 message digest for message
attributes"): sorted by name, each with the length and the bytes of name and type, one byte for the
kind of value (1 text, 2 binary), and the length and the bytes of the value. Lengths are 4 bytes,
big-endian. System attributes are digested in the same way.
"""

import struct
from collections.abc import Mapping, Sequence
from hashlib import md5
from typing import Final

from adapters.sqs.message_attributes import MessageAttribute

_LENGTH: Final = struct.Struct(">I")
_DIGEST_CHARS: Final = 32
_TEXT: Final = b"\x01"
_BINARY: Final = b"\x02"
_EMPTY: Final = md5(usedforsecurity=False)  # a copy of it costs a third of a new one


def md5_of_body(body: bytes) -> str:
    """Return the digest of a body's bytes, in hexadecimal."""
    digest = _EMPTY.copy()
    digest.update(body)
    return digest.hexdigest()


def md5s_of_bodies(bodies: Sequence[bytes]) -> list[bytes]:
    """Return the digest of each body's bytes, in hexadecimal."""
    digests = b"".join([md5(body, usedforsecurity=False).digest() for body in bodies])
    text = digests.hex().encode()
    return [text[at : at + _DIGEST_CHARS] for at in range(0, len(text), _DIGEST_CHARS)]


def md5_of_attributes(attributes: Mapping[str, MessageAttribute]) -> str:
    """Return the digest of at least one attribute, in hexadecimal."""
    length = _LENGTH.pack
    parts: list[bytes] = []
    for name in sorted(attributes):
        attribute = attributes[name]
        data, data_type, value = name.encode(), attribute.data_type.encode(), attribute.value
        kind = _BINARY if attribute.is_binary else _TEXT
        parts += (length(len(data)), data, length(len(data_type)), data_type, kind)
        parts += (length(len(value)), value)
    return md5(b"".join(parts), usedforsecurity=False).hexdigest()
