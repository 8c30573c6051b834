"""What parameters and results are made of; ``operations`` holds those of each operation.

Pure. ``query_name`` is what the Query protocol calls an element of a list, or an entry of a map,
both in a request (``AttributeName.1``) and in XML.
"""

from typing import Final, NamedTuple

SQS: Final = "sqs"
STS: Final = "sts"


class Scalar(NamedTuple):
    """One value. ``type``: what JSON makes of it; ``word``: what errors call it."""

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
    """A map of text to something."""

    query_name: str
    key_name: str
    value_name: str
    value: "Shape"
    type: type = dict


class Structure(NamedTuple):
    """Named members, of which some must be there."""

    members: "dict[str, Shape]"
    required: tuple[str, ...] = ()
    type: type = dict


Shape = Scalar | Items | Entries | Structure


class Operation(NamedTuple):
    """What one action takes and returns. ``errors`` are the shapes that are documented for it.

    ``service`` is what requests for it are signed for.
    """

    name: str
    input: Structure
    output: Structure | None
    errors: frozenset[str]
    service: str = SQS
