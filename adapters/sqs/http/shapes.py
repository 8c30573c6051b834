"""Types of parameters and results; ``operations`` has those of each operation. Pure.

``query_name`` is the Query protocol's name of an element of a list, or of an entry of a map, both
in a request (``AttributeName.1``) and in XML.
"""

from typing import Final, NamedTuple

SQS: Final = "sqs"
STS: Final = "sts"


class Scalar(NamedTuple):
    """One value. ``type`` is its type in decoded JSON, ``word`` its name in errors."""

    type: type
    word: str


STRING: Final = Scalar(str, "a String")
BLOB: Final = Scalar(str, "a Blob")  # base64 text in both protocols
INTEGER: Final = Scalar(int, "an Integer")
LONG: Final = Scalar(int, "a Long")
BOOLEAN: Final = Scalar(bool, "a Boolean")


class Items(NamedTuple):
    """A list."""

    query_name: str
    member: "Shape"
    type: type = list


class Entries(NamedTuple):
    """A map with texts as keys."""

    query_name: str
    key_name: str
    value_name: str
    value: "Shape"
    type: type = dict


class Structure(NamedTuple):
    """Named members, some of them required."""

    members: "dict[str, Shape]"
    required: tuple[str, ...] = ()
    type: type = dict


Shape = Scalar | Items | Entries | Structure


class Operation(NamedTuple):
    """Input and output of one action. ``errors`` are the shapes documented for it.

    ``service`` is the service that requests for it are signed for.
    """

    name: str
    input: Structure
    output: Structure | None
    errors: frozenset[str]
    service: str = SQS
