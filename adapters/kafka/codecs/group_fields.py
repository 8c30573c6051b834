"""Fields of the APIs of consumer groups (KIP-848) and share groups (KIP-932), all flexible."""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from adapters.kafka.codec import ElementBudget, decode_count, decode_string, skip_tags
from gateway.errors import PeerError
from gateway.groups.consumer.model import Partitions
from gateway.model import encode_uvarint

T = TypeVar("T")

TEXT_BYTES_MAX: Final = 0x7FFF
"""Bytes of a string, as in Kafka's own decoder."""

NO_THROTTLE: Final = bytes(4)
NO_TAGS: Final = b"\x00"
CODE: Final = struct.Struct(">h")
NULL: Final = b"\x00"

SHARE_API_KEYS: Final = frozenset({76, 77, 78, 79, 90, 91, 92})
"""All APIs of share groups; their versions are flexible."""

_LENGTH_BYTES: Final = 3  # of a string that is as long as may be


def decode_text(body: memoryview, at: int) -> tuple[str | None, int]:
    """Return a nullable string, and its end. Error: ``ValueError`` above Kafka's bound."""
    start = at
    text, at = decode_string(body, at, flexible=True)
    if at - start > TEXT_BYTES_MAX + _LENGTH_BYTES:
        msg = f"a string has at most {TEXT_BYTES_MAX} bytes"
        raise ValueError(msg)
    return text, at


def decode_texts(
    body: memoryview, at: int, elements: ElementBudget
) -> tuple[list[str] | None, int]:
    """Return a nullable array of strings, and its end."""
    if body[at] == 0:
        return None, at + 1
    count, at = decode_count(body, at, elements, flexible=True)
    texts = []
    for _ in range(count):
        text, at = decode_text(body, at)
        texts.append(text or "")
    return texts, at


def decode_numbers(body: memoryview, at: int, elements: ElementBudget) -> tuple[list[int], int]:
    """Return an array of int32, and its end."""
    count, at = decode_count(body, at, elements, flexible=True)
    return list(struct.unpack_from(f">{count}i", body, at)), at + 4 * count


def decode_array(
    body: memoryview,
    at: int,
    elements: ElementBudget,
    decode_one: Callable[[int], tuple[T, int]],
) -> tuple[list[T], int]:
    """Return an array of structures, and its end; tagged fields are skipped behind each.

    ``decode_one`` gets the index of a structure and returns it with its end.
    """
    count, at = decode_count(body, at, elements, flexible=True)
    found = []
    for _ in range(count):
        one, at = decode_one(at)
        at = skip_tags(body, at, elements)
        found.append(one)
    return found, at


def decode_whole(name: str, decode: Callable[[], T]) -> T:
    """Return what ``decode`` returns. Error: ``PeerError`` for a malformed request."""
    try:
        return decode()
    except (struct.error, IndexError, ValueError) as error:
        msg = f"a {name} request is garbled: {error}"
        raise PeerError(msg) from error


def encode_text(text: str | None) -> bytes:
    """Return a nullable string."""
    if text is None:
        return NULL
    data = text.encode()
    return encode_uvarint(len(data) + 1) + data


def encode_array(items: Sequence[bytes]) -> bytes:
    """Return an array of structures without tagged fields, each encoded already."""
    return encode_uvarint(len(items) + 1) + b"".join([one + NO_TAGS for one in items])


def encode_numbers(numbers: Sequence[int]) -> bytes:
    """Return an array of int32."""
    return encode_uvarint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def by_topic(
    partitions: Partitions | Iterable[tuple[UUID, int]],
) -> list[tuple[UUID, list[int]]]:
    """Return partitions' numbers by topic, in order."""
    numbers: defaultdict[UUID, list[int]] = defaultdict(list)
    for topic, number in partitions:
        numbers[topic].append(number)
    return [(topic, sorted(some)) for topic, some in sorted(numbers.items())]
