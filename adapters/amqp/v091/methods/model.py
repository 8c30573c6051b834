"""Description of a method: its ids, and its fields with their types on the wire.

Fields have the names of the specification and are in the order of the wire. ``codec.py`` reads and
writes them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, TypeVar, dataclass_transform

from adapters.amqp.v091.fields import Table

Byte = Annotated[int, "byte"]
Short = Annotated[int, "short"]
Long = Annotated[int, "long"]
LongLong = Annotated[int, "longlong"]
ShortStr = Annotated[str, "shortstr"]
LongStr = Annotated[bytes, "longstr"]
Bit = Annotated[bool, "bit"]
Fields = Annotated[Table, "table"]


class Method:
    """Base of all methods. ``INDEX``: class id and method id. ``NAME``: as ``basic.publish``."""

    __slots__ = ()

    INDEX: ClassVar[tuple[int, int]]
    NAME: ClassVar[str]


METHODS: Final[dict[tuple[int, int], type[Method]]] = {}
_M = TypeVar("_M", bound=Method)


@dataclass_transform(frozen_default=True)
def method(class_id: int, method_id: int) -> Callable[[type[_M]], type[_M]]:
    """Register a method under its ids; its docstring is its name."""

    def register(found: type[_M]) -> type[_M]:
        made = dataclass(frozen=True, slots=True)(found)
        made.INDEX = class_id, method_id
        made.NAME = (found.__doc__ or "").strip("`.")
        METHODS[made.INDEX] = made
        return made

    return register
