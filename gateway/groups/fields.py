"""Fields of what groups store: texts and bytes behind their length, structs one by one.

Integers are big-endian; a length of 0xFFFFFFFF means null.
"""

import struct
from typing import Any, Final

U32: Final = struct.Struct(">I")
_NULL: Final = U32.pack(0xFFFF_FFFF)
_NULL_LENGTH: Final = 0xFFFF_FFFF


def encode_text(text: str | None) -> bytes:
    """Return a text behind its length."""
    return _NULL if text is None else encode_data(text.encode())


def encode_data(data: bytes) -> bytes:
    """Return bytes behind their length."""
    return U32.pack(len(data)) + data


class FieldReader:
    """Reads one field after the other. Error of all methods: ``struct.error``."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._at = 0

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the fields of a struct."""
        fields = layout.unpack_from(self._value, self._at)
        self._at += layout.size
        return fields

    def data(self) -> bytes | None:
        """Return bytes, or None for null."""
        (size,) = self.unpack(U32)
        if size == _NULL_LENGTH:
            return None
        start, self._at = self._at, self._at + size
        if self._at > len(self._value):
            msg = f"{size} bytes do not fit the value"
            raise struct.error(msg)
        return self._value[start : self._at]

    def text(self) -> str | None:
        """Return a text, or None for null."""
        data = self.data()
        return None if data is None else data.decode()

    def rest(self) -> bytes:
        """Return what follows the fields that were read."""
        return self._value[self._at :]
