"""APIs of share groups against kio's codec, in every version, and with garbage."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.kafka.codecs import (
    consumer_group_codec,
    share_fetch_codec,
    share_group_codec,
    share_offsets_codec,
)
from adapters.kafka.codecs.current_leader import CurrentLeader
from adapters.kafka.codecs.metadata_codec import BrokerAddress
from adapters.kafka.codecs.share_fetch_codec import (
    AcquiredRange,
    ShareAcknowledgeResult,
    ShareFetchResult,
)
from adapters.kafka.codecs.share_group_codec import DescribedShareGroup, DescribedShareMember
from adapters.kafka.codecs.share_offsets_codec import (
    AlteredTopic,
    DeletedTopic,
    GroupOffsets,
    StartOffset,
    TopicOffsets,
)
from gateway.errors import PeerError
from tests.adapters.kafka.codecs import kio_codec

TOPIC = UUID("6f1c9b1e-0f6e-4b0c-9a8f-0123456789ab")
ADDRESS = BrokerAddress(4, "gate.example", 9092, None)

DECODERS: list[tuple[int, int, Callable[..., Any]]] = [
    (76, 1, share_group_codec.decode_heartbeat),
    (77, 1, share_group_codec.decode_describe),
    (78, 1, share_fetch_codec.decode_fetch),
    (78, 2, share_fetch_codec.decode_fetch),
    (79, 1, share_fetch_codec.decode_acknowledge),
    (79, 2, share_fetch_codec.decode_acknowledge),
    (90, 0, share_offsets_codec.decode_describe),
    (90, 1, share_offsets_codec.decode_describe),
    (91, 0, share_offsets_codec.decode_alter),
    (92, 0, share_offsets_codec.decode_delete),
]


def values(found: Any) -> Any:
    """Return what both codecs say of a request: its values in order, without names."""
    if isinstance(found, dict):
        return [values(one) for one in found.values()]
    if isinstance(found, bytes):
        return list(found)
    if isinstance(found, frozenset):
        return sorted(found)
    if isinstance(found, list | tuple):
        return [values(one) for one in found]
    return found


@pytest.mark.parametrize(("api_key", "version", "decode"), DECODERS)
def test_requests_are_read(api_key: int, version: int, decode: Callable[..., Any]) -> None:
    entity = kio_codec.sample(kio_codec.request_class(api_key, version), with_nulls=False)

    request = decode(version, memoryview(kio_codec.encode(entity)))

    found = values(request)
    if (api_key, version) == (78, 1):
        del found[8:10]  # fields of version 2
    if (api_key, version) == (79, 1):
        del found[3]
    expected = values(kio_codec.plain(entity))
    if api_key == 92:
        expected[1] = [name for (name,) in expected[1]]
    assert found == expected


@pytest.mark.parametrize(("api_key", "version", "decode"), DECODERS)
def test_nullable_fields_are_read(
    api_key: int, version: int, decode: Callable[..., Any]
) -> None:
    entity = kio_codec.sample(kio_codec.request_class(api_key, version), with_nulls=True)

    decode(version, memoryview(kio_codec.encode(entity)))


@pytest.mark.parametrize(("version", "decode"), [one[1:] for one in DECODERS])
@given(data=st.binary(max_size=120))
def test_any_bytes_are_a_request_or_a_peer_error(
    version: int, decode: Callable[..., Any], data: bytes
) -> None:
    with suppress(PeerError):
        decode(version, memoryview(data), 1_000)


def answer(api_key: int, version: int, body: bytes) -> Any:
    return kio_codec.plain(kio_codec.decode(kio_codec.response_class(api_key, version), body))


def test_a_heartbeat_answer_is_read_by_others() -> None:
    body = consumer_group_codec.encode_heartbeat_response(
        0, "why", "m", 3, 5_000, frozenset({(TOPIC, 1), (TOPIC, 0)})
    )

    found = answer(76, 1, body)

    assert (found["memberid"], found["memberepoch"]) == ("m", 3)
    assert found["assignment"] == {
        "topicpartitions": [{"topicid": TOPIC, "partitions": [0, 1]}]
    }


def test_a_description_is_read_by_others() -> None:
    member = DescribedShareMember(
        "m", None, 2, "app", "/10.0.0.1", ["b", "a"], frozenset({(TOPIC, 4)})
    )
    group = DescribedShareGroup(
        0, None, "g", "Stable", 7, 6, "simple", [member], {TOPIC: "orders"}, 12
    )

    [found] = answer(77, 1, share_group_codec.encode_describe_response([group]))["groups"]

    assert (found["groupepoch"], found["assignmentepoch"]) == (7, 6)
    assert found["authorizedoperations"] == 12
    [described] = found["members"]
    assert described["subscribedtopicnames"] == ["a", "b"]
    assert described["assignment"]["topicpartitions"] == [
        {"topicid": TOPIC, "topicname": "orders", "partitions": [4]}
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_a_fetch_answer_is_read_by_others(version: int) -> None:
    results = [
        ShareFetchResult(3, batches=[b"one", b"two"], acquired=[AcquiredRange(5, 9, 2)]),
        ShareFetchResult(4, 6, "moved", 121, "late", CurrentLeader(4, 8)),
    ]

    pieces = share_fetch_codec.encode_fetch_response(
        [(TOPIC, results)], lock_ms=30_000, nodes=[ADDRESS]
    )

    found = answer(78, version, b"".join(bytes(piece) for piece in pieces))
    assert found["acquisitionlocktimeout"] == 30_000
    [topic] = found["responses"]
    first, second = topic["partitions"]
    assert first["records"] == b"onetwo"
    assert first["acquiredrecords"] == [{"firstoffset": 5, "lastoffset": 9, "deliverycount": 2}]
    assert (second["errorcode"], second["acknowledgeerrorcode"]) == (6, 121)
    assert second["currentleader"] == {"leaderid": 4, "leaderepoch": 8}
    assert [node["port"] for node in found["nodeendpoints"]] == [9092]


@pytest.mark.parametrize("version", [1, 2])
def test_an_acknowledge_answer_is_read_by_others(version: int) -> None:
    results = [ShareAcknowledgeResult(3), ShareAcknowledgeResult(4, 121, "late")]

    body = share_fetch_codec.encode_acknowledge_response(
        version, [(TOPIC, results)], lock_ms=15_000
    )

    found = answer(79, version, body)
    assert found.get("acquisitionlocktimeout", 15_000) == 15_000
    [topic] = found["responses"]
    assert [part["errorcode"] for part in topic["partitions"]] == [0, 121]


@pytest.mark.parametrize("version", [0, 1])
def test_described_offsets_are_read_by_others(version: int) -> None:
    topic = TopicOffsets(
        "orders", TOPIC, [StartOffset(1, 44, 3, 6), StartOffset(2, -1, -1, -1)]
    )
    groups = [GroupOffsets("g", [topic]), GroupOffsets("h", [], 69, "not found")]

    found = answer(90, version, share_offsets_codec.encode_describe_response(version, groups))

    first, second = found["groups"]
    [described] = first["topics"]
    assert [part["startoffset"] for part in described["partitions"]] == [44, -1]
    if version:
        assert [part["lag"] for part in described["partitions"]] == [6, -1]
    assert (second["errorcode"], second["errormessage"]) == (69, "not found")


def test_altered_and_deleted_offsets_are_read_by_others() -> None:
    altered = share_offsets_codec.encode_alter_response(
        [AlteredTopic("orders", TOPIC, [(1, 0, None), (2, 3, "none")])]
    )
    deleted = share_offsets_codec.encode_delete_response(
        [DeletedTopic("orders", TOPIC, 3, "none")], error_code=0
    )

    [topic] = answer(91, 0, altered)["responses"]
    assert [part["errorcode"] for part in topic["partitions"]] == [0, 3]
    [gone] = answer(92, 0, deleted)["responses"]
    assert (gone["topicid"], gone["errorcode"]) == (TOPIC, 3)
