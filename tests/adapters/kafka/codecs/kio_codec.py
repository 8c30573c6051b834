"""kio as a second Kafka codec, with sample values and a common form of both codecs' objects.

``sample`` builds a kio entity with every field set to something else; ``plain`` turns an object
of either library into nested dicts whose keys are spelled alike, so that they can be compared.
"""

import dataclasses
import datetime as dt
import io
import itertools
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

_EPOCH = dt.datetime.fromtimestamp(0, tz=dt.UTC)


def request_class(api_key: int, version: int) -> Any:
    """Return kio's class of a request body."""
    return load_request_schema(api_key, version)


def response_class(api_key: int, version: int) -> Any:
    """Return kio's class of a response body."""
    return load_response_schema(api_key, version)


def encode(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode(kind: Any, body: bytes | bytearray) -> Any:
    """Return the entity; ``body`` has to be read to its end."""
    entity, size_bytes = entity_reader(kind)(bytes(body), 0)
    assert size_bytes == len(body)
    return entity


def sample(kind: Any, *, with_nulls: bool) -> Any:
    """Return an entity whose values all differ, or whose nullable fields are null."""
    return _entity(kind, itertools.count(1), with_nulls=with_nulls)


def _entity(kind: Any, numbers: Iterator[int], *, with_nulls: bool) -> Any:
    hints = typing.get_type_hints(kind)
    return kind(
        **{
            field.name: _value(
                hints[field.name],
                field.metadata.get("kafka_type"),
                numbers,
                with_nulls=with_nulls,
            )
            for field in dataclasses.fields(kind)
        }
    )


def _value(
    hint: Any, kafka_type: str | None, numbers: Iterator[int], *, with_nulls: bool
) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        if with_nulls:
            return None
        hint = next(arg for arg in typing.get_args(hint) if arg is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        element = typing.get_args(hint)[0]
        return tuple(
            _value(element, kafka_type, numbers, with_nulls=with_nulls) for _ in range(2)
        )
    if dataclasses.is_dataclass(hint):
        return _entity(hint, numbers, with_nulls=with_nulls)
    return _scalar(hint, kafka_type, next(numbers))


def _scalar(hint: Any, kafka_type: str | None, number: int) -> Any:  # noqa: PLR0911 - types
    if hint is ErrorCode:
        return list(ErrorCode)[number % len(ErrorCode)]
    if hint is uuid.UUID:
        return uuid.UUID(int=number << 64 | number)
    if issubclass(hint, dt.timedelta):
        return dt.timedelta(milliseconds=number)
    if issubclass(hint, dt.datetime):
        return _EPOCH + dt.timedelta(milliseconds=number)
    if issubclass(hint, bool):
        return number % 2 == 1
    if issubclass(hint, int):
        return number % 100 if kafka_type == "int8" else number * 7
    if issubclass(hint, float):
        return number / 2
    if issubclass(hint, str):
        return f"text-{number}-ä"
    assert issubclass(hint, bytes)
    return b"record-%d" % number


def plain(value: Any) -> Any:  # noqa: PLR0911 - one for each type
    """Return the value of either library as dicts, lists and plain scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            _spell(field.name): plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if hasattr(value, "_struct"):
        return {
            _spell(field.name): plain(getattr(value, field.name))
            for field in value._struct.fields.values()
            if field.for_version_q(value.version)
        }
    if isinstance(value, set):
        return sum(1 << bit for bit in value)
    if isinstance(value, tuple | list):
        return [plain(element) for element in value]
    if isinstance(value, dt.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, dt.datetime):
        return round((value - _EPOCH).total_seconds() * 1000)
    if isinstance(value, ErrorCode):
        return int(value.value)
    return value


def _spell(name: str) -> str:
    name = name.removesuffix("_ms").replace("_", "")
    # kafka-python renames these three.
    return "authorizedoperations" if name.endswith("authorizedoperations") else name


def build(container: Any, values: dict[str, Any], version: int) -> Any:
    """Return a kafka-python object of class ``container`` with the values of ``plain``."""
    fields = {}
    for field in container._struct.fields.values():
        if not field.for_version_q(version):
            continue
        value = values[_spell(field.name)]
        if value is not None and field.is_struct():
            value = build(field.data_class, value, version)
        elif value is not None and field.is_struct_array():
            value = [build(field.data_class, element, version) for element in value]
        elif field.type_str == "bitfield":
            value = {bit for bit in range(32) if value >> bit & 1}
        fields[field.name] = value
    return container(version=version, **fields)
