"""Request headers, the primitives of Kafka's encoding, and ApiVersions: bytes <-> plain tuples.

The codecs of frequent APIs are written by hand on these primitives: ``produce_codec``,
``fetch_codec``, ``group_codec``, ``metadata_codec``. They make one pass over a memoryview and
return slices and tuples. All other APIs use ``schema_codec``. Layouts: the Kafka protocol guide.
"Flexible" versions (KIP-482) have compact lengths (uvarint of n + 1) and a section of tagged
fields after each structure.

Malformed input raises ``PeerError``.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from gateway.errors import PeerError
from gateway.model import decode_uvarint, encode_uvarint

ELEMENTS_MAX: Final = 200_000
"""Default of ``request_elements_max``: array elements and tagged fields of one request."""

SECTION_TAGS_MAX: Final = 64  # in the request header; clients send a few at most

P = TypeVar("P")

TopicRef = str | UUID
"""A topic as a request names it: by name, or by id in the versions that do (KIP-516)."""

API_VERSIONS: Final = 18
API_VERSIONS_FLEXIBLE: Final = 3

UUID_BYTES: Final = 16

I8: Final = struct.Struct(">b")
I16: Final = struct.Struct(">h")
I32: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhih")


class TooManyElements(PeerError):
    """A request has more array elements and tagged fields than allowed."""


class ElementBudget:
    """Array elements and tagged fields that a request may still have.

    The bound is needed because an element of one byte becomes an object of a hundred bytes.
    """

    __slots__ = ("count_max", "left")

    def __init__(self, count_max: int = ELEMENTS_MAX) -> None:
        self.count_max = count_max
        self.left = count_max

    def claim(self, count: int) -> None:
        """Take ``count`` elements. Error: ``TooManyElements``."""
        self.left -= count
        if self.left < 0:
            msg = f"more than {self.count_max} elements in one request"
            raise TooManyElements(msg)


class RequestHeader(NamedTuple):
    """Header of a request; ``body_at`` is the index of the body in the frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str
    body_at: int


def decode_request_header(
    frame: memoryview, is_flexible: Callable[[int, int], bool]
) -> RequestHeader:
    """Return the header (v1, or v2 where the API's version is flexible) of a whole frame."""
    try:
        api_key, version, correlation_id, client_bytes = _REQUEST.unpack_from(frame)
        at = _REQUEST.size
        client_id = ""
        if client_bytes > 0:
            client_id = decode_text(frame, at, client_bytes)
            at += client_bytes
        if is_flexible(api_key, version):
            at = skip_tags(frame, at)
    except (struct.error, IndexError, ValueError) as error:
        msg = f"a request header is garbled: {error}"
        raise PeerError(msg) from error
    return RequestHeader(api_key, version, correlation_id, client_id, at)


def decode_text(data: memoryview, at: int, size_bytes: int) -> str:
    """Return ``size_bytes`` bytes as text. Error: ``ValueError``."""
    end = at + size_bytes
    if size_bytes < 0 or end > len(data):
        msg = f"{size_bytes} bytes of text do not fit the frame"
        raise ValueError(msg)
    return str(data[at:end], "utf-8")


def skip_tags(data: memoryview, at: int, elements: ElementBudget | None = None) -> int:
    """Return the end of a section of tagged fields (KIP-482).

    The fields are counted in ``elements``; without it ``SECTION_TAGS_MAX`` are allowed.
    """
    count = data[at]
    if count == 0:
        return at + 1
    count, at = decode_uvarint(data, at)
    (elements or ElementBudget(SECTION_TAGS_MAX)).claim(count)
    for _ in range(count):
        _, at = decode_uvarint(data, at)
        size_bytes, at = decode_uvarint(data, at)
        at += size_bytes
        if at > len(data):
            msg = "a tagged field does not fit the frame"
            raise ValueError(msg)
    return at


def decode_count(
    data: memoryview, at: int, elements: ElementBudget, *, flexible: bool
) -> tuple[int, int]:
    """Return an array's length, null as 0, and its end. The elements are counted.

    Error: ``ValueError`` for more elements than bytes, as each takes at least one.
    """
    if flexible:
        count, at = decode_uvarint(data, at)
        count -= 1
    else:
        (count,) = I32.unpack_from(data, at)
        at += 4
    if count > len(data) - at:
        msg = f"an array of {count} does not fit the frame"
        raise ValueError(msg)
    if count <= 0:
        return 0, at
    elements.claim(count)
    return count, at


def decode_string(data: memoryview, at: int, *, flexible: bool) -> tuple[str | None, int]:
    """Return a nullable string, and its end."""
    if flexible:
        size_bytes, at = decode_uvarint(data, at)
        size_bytes -= 1
    else:
        (size_bytes,) = I16.unpack_from(data, at)
        at += 2
    if size_bytes < 0:
        return None, at
    return decode_text(data, at, size_bytes), at + size_bytes


def decode_topic_ref(
    data: memoryview, at: int, *, flexible: bool, by_id: bool
) -> tuple[TopicRef, int]:
    """Return a topic's name or id, and its end; a null name is returned as an empty one."""
    if by_id:
        end = at + UUID_BYTES
        return UUID(bytes=bytes(data[at:end])), end
    name, at = decode_string(data, at, flexible=flexible)
    return name or "", at


def decode_topics(
    data: memoryview,
    at: int,
    elements: ElementBudget,
    decode_partition: Callable[[int], tuple[P, int]],
    *,
    flexible: bool,
    by_id: bool,
) -> tuple[list[tuple[TopicRef, list[P]]], int]:
    """Return an array of topics with an array of partitions each, and its end.

    ``decode_partition`` gets the index of a partition's first field and returns what is there and
    where its fields end; tagged fields are skipped behind it.
    """
    topic_count, at = decode_count(data, at, elements, flexible=flexible)
    topics = []
    for _ in range(topic_count):
        ref, at = decode_topic_ref(data, at, flexible=flexible, by_id=by_id)
        partition_count, at = decode_count(data, at, elements, flexible=flexible)
        partitions = []
        for _ in range(partition_count):
            partition, at = decode_partition(at)
            if flexible:
                at = skip_tags(data, at, elements)
            partitions.append(partition)
        if flexible:
            at = skip_tags(data, at, elements)
        topics.append((ref, partitions))
    return topics, at


def decode_records(
    data: memoryview, at: int, *, flexible: bool
) -> tuple[memoryview | None, int]:
    """Return nullable records as a slice of ``data``, and their end."""
    if flexible:
        size_bytes, at = decode_uvarint(data, at)
        size_bytes -= 1
    else:
        (size_bytes,) = I32.unpack_from(data, at)
        at += 4
    if size_bytes < 0:
        return None, at
    end = at + size_bytes
    if end > len(data):
        msg = f"{size_bytes} bytes of records do not fit the frame"
        raise ValueError(msg)
    return data[at:end], end


def encode_count(count: int, *, flexible: bool) -> bytes:
    """Return an array's length."""
    return encode_uvarint(count + 1) if flexible else I32.pack(count)


def encode_topic_ref(ref: TopicRef, *, flexible: bool) -> bytes:
    """Return a topic's name or id."""
    if isinstance(ref, UUID):
        return ref.bytes
    name = ref.encode()
    return (encode_uvarint(len(name) + 1) if flexible else I16.pack(len(name))) + name


def encode_results(
    topics: Sequence[tuple[TopicRef, Sequence[P]]],
    encode_result: Callable[[P], bytes],
    *,
    flexible: bool,
) -> bytearray:
    """Return an array of topics with an array of results each, encoded by ``encode_result``."""
    out = bytearray(encode_count(len(topics), flexible=flexible))
    for ref, results in topics:
        out += encode_topic_ref(ref, flexible=flexible)
        out += encode_count(len(results), flexible=flexible)
        for result in results:
            out += encode_result(result)
        if flexible:
            out.append(0)
    return out


FEATURES_EPOCH: Final = 1
"""Epoch of the finalized features: they change with a restart only."""


def encode_api_versions_response(
    version: int,
    error_code: int,
    apis: Sequence[tuple[int, int, int]],
    features: Mapping[str, int],
) -> bytes:
    """Return the body of an ApiVersions response; ``apis``: (key, lowest, highest version).

    ``features``: finalized level of each feature (KIP-584); the levels from 1 on are supported.

    The caller encodes the response to an unknown version as version 0 (KIP-511).
    """
    flexible = version >= API_VERSIONS_FLEXIBLE
    out = bytearray(I16.pack(error_code))
    out += encode_count(len(apis), flexible=flexible)
    for key, lowest, highest in apis:
        out += struct.pack(">hhh", key, lowest, highest)
        if flexible:
            out.append(0)
    if version >= 1:
        out += bytes(4)
    if flexible:
        out += _encode_features(features)
    return bytes(out)


def _encode_features(features: Mapping[str, int]) -> bytes:
    """Return the tagged fields 0 to 2: supported features, their epoch, finalized features."""
    supported = bytearray(encode_count(len(features), flexible=True))
    finalized = bytearray(supported)
    for name, level in features.items():
        text = encode_count(len(name), flexible=True) + name.encode()
        supported += text + struct.pack(">hhB", 1, level, 0)  # lowest, highest
        finalized += text + struct.pack(">hhB", level, level, 0)  # highest, lowest
    fields = (bytes(supported), struct.pack(">q", FEATURES_EPOCH), bytes(finalized))
    out = bytearray([len(fields)])
    for tag, field in enumerate(fields):
        out += bytes([tag]) + encode_uvarint(len(field)) + field
    return bytes(out)
