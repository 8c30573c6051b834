"""Bounded decoding of request bodies by the schemas that kafka-python bundles.

kafka-python's own compiled decoders are made for a client that trusts its broker: they loop
over any claimed array count, slice strings past the end of the frame, build varints of any
length, and copy the rest of the frame for every structure with tagged fields. The readers here
decode the same schemas into the same message classes, and

- check every length against the bytes that remain,
- accept at most ``elements_max`` array elements and tagged fields in a request, because an
  element of one byte becomes an object of a hundred bytes,
- refuse null where the schema does not allow it,
- skip unknown tagged fields, as KIP-482 requires.

Bytes after the last field are ignored, as in Apache Kafka. Wire types: Kafka protocol guide,
"Protocol Primitive Types"; tagged fields: KIP-482; nullable structures: KIP-893.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Final
from uuid import UUID

from adapters.kafka.codec import ELEMENTS_MAX, UUID_BYTES, ElementBudget
from gateway.errors import PeerError
from gateway.model import Buffer, decode_uvarint

_NULL: Final = -1
_INTS: Final = {"h": Struct(">h"), "i": Struct(">i")}


class Cursor:
    """Read position in a request body; it never moves past the end."""

    __slots__ = ("data", "elements", "end", "position")

    def __init__(self, data: Buffer, elements_max: int = ELEMENTS_MAX) -> None:
        self.data = memoryview(data)
        self.position = 0
        self.end = len(data)
        self.elements = ElementBudget(elements_max)

    def advance(self, size_bytes: int) -> int:
        """Move forward by ``size_bytes`` and return the old position. Errors: ``PeerError``."""
        start = self.position
        if size_bytes > self.end - start:
            msg = f"the request ends {size_bytes - (self.end - start)} bytes too early"
            raise PeerError(msg)
        self.position = start + size_bytes
        return start

    def take(self, size_bytes: int) -> bytes:
        """Return the next ``size_bytes`` bytes. Errors: ``PeerError``."""
        start = self.advance(size_bytes)
        return self.data[start : start + size_bytes].tobytes()

    def unsigned_varint(self) -> int:
        """Return an unsigned varint of at most 5 bytes. Errors: ``PeerError``."""
        try:
            value, self.position = decode_uvarint(self.data, self.position)
        except IndexError:
            raise PeerError("the request ends within a varint") from None
        except ValueError as error:
            raise PeerError(str(error)) from None
        return value

    def claim(self, elements: int) -> None:
        """Count ``elements`` of at least one byte each.

        Errors: ``PeerError``, ``TooManyElements``.
        """
        if elements > self.end - self.position:
            msg = f"{elements} elements in {self.end - self.position} bytes"
            raise PeerError(msg)
        self.elements.claim(elements)

    def length(self, layout: str, *, is_flexible: bool, nullable: bool) -> int:
        """Return a length or count: an int of ``layout``, or a varint that is one more.

        -1 stands for null. Errors: ``PeerError``, also for null where it is not allowed.
        """
        if is_flexible:
            length = self.unsigned_varint() - 1
        else:
            packed = _INTS[layout]
            length = packed.unpack_from(self.data, self.advance(packed.size))[0]
        if length < _NULL or (length == _NULL and not nullable):
            msg = f"a length of {length} where there must be a value"
            raise PeerError(msg)
        return length

    def string(self, *, is_flexible: bool, nullable: bool) -> str | None:
        """Return a string, None for null. Errors: ``PeerError``."""
        length = self.length("h", is_flexible=is_flexible, nullable=nullable)
        if length == _NULL:
            return None
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            msg = "a string is not UTF-8"
            raise PeerError(msg) from error

    def skip_tagged(self) -> None:
        """Skip a section of tagged fields."""
        count = self.unsigned_varint()
        self.claim(count)
        for _ in range(count):
            self.unsigned_varint()
            self.advance(self.unsigned_varint())


Reader = Callable[[Cursor], Any]


def reader_of(message_class: Any, version: int) -> Reader:  # noqa: ANN401 - a generated class
    """Return a function that reads a body into an object of ``message_class``.

    It raises ``PeerError`` only. Build it once per class and version and keep it.
    """
    is_flexible = message_class.flexible_version_q(version)
    # The schema has no public name in kafka-python; the release is pinned.
    fields = message_class._struct.untagged_fields(version)  # noqa: SLF001
    tagged = _tagged_readers(message_class._struct, version) if is_flexible else None  # noqa: SLF001
    named = _named(fields, version, is_flexible=is_flexible)

    def read(cursor: Cursor) -> object:
        values = {name: read_field(cursor) for name, read_field in named}
        if tagged is not None:
            values.update(_read_tagged(cursor, tagged))
        return message_class(version=version, **values)

    return read


Named = tuple[tuple[str, Reader], ...]


def _named(fields: Any, version: int, *, is_flexible: bool) -> Named:  # noqa: ANN401
    return tuple(
        (field.name, _field_reader(field, version, is_flexible=is_flexible)) for field in fields
    )


def _tagged_readers(struct: Any, version: int) -> Mapping[int, tuple[str, Reader]]:  # noqa: ANN401
    return {
        field.tag: (field.name, _field_reader(field, version, is_flexible=True))
        for field in struct.fields.values()
        if field.for_version_q(version) and field.tagged_field_q(version)
    }


def _read_tagged(cursor: Cursor, tagged: Mapping[int, tuple[str, Reader]]) -> dict[str, object]:
    """Return the tagged fields of the schema; unknown ones are skipped."""
    values: dict[str, object] = {}
    count = cursor.unsigned_varint()
    cursor.claim(count)
    for _ in range(count):
        tag = cursor.unsigned_varint()
        size_bytes = cursor.unsigned_varint()
        start = cursor.advance(size_bytes)
        if tag in tagged:
            name, read_field = tagged[tag]
            outer_end, cursor.end, cursor.position = cursor.end, start + size_bytes, start
            values[name] = read_field(cursor)
            cursor.position, cursor.end = start + size_bytes, outer_end
    return values


def _field_reader(field: Any, version: int, *, is_flexible: bool) -> Reader:  # noqa: ANN401
    nullable = field.nullable_for_version_q(version)
    if field.is_struct():
        read_object = _struct_reader(field, version, is_flexible=is_flexible)
        return _nullable_struct_reader(read_object) if nullable else read_object
    if field.is_struct_array():
        read_element = _struct_reader(field.array_of, version, is_flexible=is_flexible)
        return _array_reader(read_element, is_flexible=is_flexible, nullable=nullable)
    if field.is_array():
        read_element = _field_reader(field.array_of, version, is_flexible=is_flexible)
        return _array_reader(read_element, is_flexible=is_flexible, nullable=nullable)
    if field.type_str == "string":
        return _string_reader(is_flexible=is_flexible, nullable=nullable)
    if field.type_str in {"bytes", "records"}:
        return _bytes_reader(is_flexible=is_flexible, nullable=nullable)
    return _FIXED[field.type_str]


def _struct_reader(field: Any, version: int, *, is_flexible: bool) -> Reader:  # noqa: ANN401
    """Return a function that reads a nested structure.

    It sets the slots of an object made without its constructor, as kafka-python's decoders do;
    the constructor takes twice as long, and a request may have ``ELEMENTS_MAX`` structures.
    """
    container = field.data_class
    named = _named(field.untagged_fields(version), version, is_flexible=is_flexible)
    tagged = _tagged_readers(field, version) if is_flexible else None

    def read(cursor: Cursor) -> object:
        element = container.__new__(container)
        element._version = version  # noqa: SLF001
        element.tags = element.unknown_tags = None
        for name, read_field in named:
            setattr(element, name, read_field(cursor))
        if tagged is not None:
            for name, value in _read_tagged(cursor, tagged).items():
                setattr(element, name, value)
        return element

    return read


def _nullable_struct_reader(read_object: Reader) -> Reader:
    def read(cursor: Cursor) -> object:
        return None if _FIXED["int8"](cursor) < 0 else read_object(cursor)

    return read


def _array_reader(read_element: Reader, *, is_flexible: bool, nullable: bool) -> Reader:
    def read(cursor: Cursor) -> list[Any] | None:
        count = cursor.length("i", is_flexible=is_flexible, nullable=nullable)
        if count == _NULL:
            return None
        cursor.claim(count)
        return [read_element(cursor) for _ in range(count)]

    return read


def _string_reader(*, is_flexible: bool, nullable: bool) -> Reader:
    def read(cursor: Cursor) -> str | None:
        return cursor.string(is_flexible=is_flexible, nullable=nullable)

    return read


def _bytes_reader(*, is_flexible: bool, nullable: bool) -> Reader:
    def read(cursor: Cursor) -> bytes | None:
        length = cursor.length("i", is_flexible=is_flexible, nullable=nullable)
        return None if length == _NULL else cursor.take(length)

    return read


def _fixed_reader(layout: str) -> Reader:
    packed = Struct(">" + layout)

    def read(cursor: Cursor) -> Any:  # noqa: ANN401 - int, float or bool
        return packed.unpack_from(cursor.data, cursor.advance(packed.size))[0]

    return read


def _read_uuid(cursor: Cursor) -> UUID | None:
    """Return a uuid, None for the zero uuid (no value), as kafka-python does."""
    data = cursor.take(UUID_BYTES)
    return UUID(bytes=data) if any(data) else None


_FIXED: Final[Mapping[str, Reader]] = {
    "bool": _fixed_reader("?"),
    "int8": _fixed_reader("b"),
    "int16": _fixed_reader("h"),
    "uint16": _fixed_reader("H"),
    "int32": _fixed_reader("i"),
    "int64": _fixed_reader("q"),
    "float64": _fixed_reader("d"),
    "uuid": _read_uuid,
}
