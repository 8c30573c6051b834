"""Options and columns of a frame written with ``format("headgate")``, checked."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from pipeline.log.options import BadOption

SINK_HEADER: Final = "headgate.sink"
KAFKA_PREFIX: Final = "kafka."
_NAMES: Final = ("bootstrap", "topic", "id")
_SET_BY_SPARK: Final = frozenset({"checkpointlocation", "path"})
_TEXT: Final = (StringType, BinaryType)
_TYPES: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "topic": (StringType,),
    "partition": (IntegerType, ShortType),
    "timestamp": (TimestampType, LongType),
    "key": _TEXT,
    "value": _TEXT,
    "headers": (ArrayType,),
}
_NOT_WRITTEN: Final = frozenset({"offset", "protocol"})  # of what was read: they come anew


class SinkOptions(NamedTuple):
    """Options of a sink. ``topic`` empty: each row has its own. ``client``: settings of librdkafka.

    ``writer_id`` is in the header of each record; a stream's default is its query's id.
    """

    bootstrap: str
    topic: str
    writer_id: str
    client: dict[str, str]


def parse_sink_options(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> SinkOptions:
    """Parse options and columns. Error: ``BadOption``."""
    if overwrite:
        raise BadOption("a topic can be appended to, not overwritten: mode('append')")
    values, client = _known(given)
    if not values.get("bootstrap"):
        raise BadOption("bootstrap is missing: the Kafka endpoint, as in localhost:9092")
    _check_columns(schema, needs_topic=not values.get("topic"))
    return SinkOptions(
        values["bootstrap"], values.get("topic", ""), values.get("id", ""), client
    )


def _known(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    values: dict[str, str] = {}
    client: dict[str, str] = {}
    for name, value in given.items():
        lowered = name.lower()
        if lowered in _NAMES:
            values[lowered] = value
        elif lowered.startswith(KAFKA_PREFIX):
            client[lowered.removeprefix(KAFKA_PREFIX)] = value
        elif lowered not in _SET_BY_SPARK:
            near = get_close_matches(name, _NAMES, n=1)
            hint = (
                f"did you mean {near[0]}?"
                if near
                else f"there are {', '.join(_NAMES)}, and kafka.* for the client"
            )
            raise BadOption(f"unknown option {name!r}; {hint}")
    return values, client


def _check_columns(schema: StructType, *, needs_topic: bool) -> None:
    names = set(schema.names)
    if "value" not in names:
        raise BadOption("the frame has no column value")
    if needs_topic and "topic" not in names:
        raise BadOption("where to? Set the option topic, or give the frame a column topic")
    for field in schema.fields:
        if field.name in _NOT_WRITTEN:
            continue
        types = _TYPES.get(field.name)
        if types is None:
            raise BadOption(
                f"column {field.name!r}: a record has {', '.join(_TYPES)}; select those"
            )
        if not isinstance(field.dataType, types) or not _is_headers(field.name, field.dataType):
            wanted = " or ".join(one().simpleString() for one in types if one is not ArrayType)
            raise BadOption(
                f"column {field.name!r} is {field.dataType.simpleString()}, not "
                f"{wanted or 'array<struct<key:string,value:binary>>'}"
            )


def _is_headers(name: str, kind: DataType) -> bool:
    if name != "headers":
        return True
    assert isinstance(kind, ArrayType)
    fields = kind.elementType.fields if isinstance(kind.elementType, StructType) else []
    return [type(field.dataType) for field in fields] == [StringType, BinaryType]
