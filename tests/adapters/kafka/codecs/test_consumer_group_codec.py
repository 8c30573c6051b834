"""ConsumerGroupHeartbeat and ConsumerGroupDescribe against a second codec, and garbled."""

import random
from typing import Any
from uuid import UUID

import pytest

from adapters.kafka.codecs import consumer_group_codec as codec
from gateway.errors import PeerError
from gateway.model import encode_uvarint
from tests.adapters.kafka.codecs import kio_codec

HEARTBEAT, DESCRIBE = 68, 69
VERSIONS = (0, 1)


def request_body(key: int, version: int, *, with_nulls: bool) -> tuple[Any, bytes]:
    entity = kio_codec.sample(kio_codec.request_class(key, version), with_nulls=with_nulls)
    return entity, kio_codec.encode(entity)


@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_heartbeats_are_decoded(version: int, *, with_nulls: bool) -> None:
    entity, body = request_body(HEARTBEAT, version, with_nulls=with_nulls)

    request = codec.decode_heartbeat(version, memoryview(body))

    names, topics = entity.subscribed_topic_names, entity.topic_partitions
    assert request == codec.ConsumerGroupHeartbeatRequest(
        entity.group_id,
        entity.member_id,
        entity.member_epoch,
        entity.instance_id,
        entity.rack_id,
        round(entity.rebalance_timeout.total_seconds() * 1_000),
        None if names is None else frozenset(names),
        entity.subscribed_topic_regex if version >= 1 else None,
        entity.server_assignor,
        None
        if topics is None
        else frozenset((topic.topic_id, n) for topic in topics for n in topic.partitions),
    )


def test_a_heartbeats_answer_is_encoded() -> None:
    uuid = UUID(int=7)
    body = codec.encode_heartbeat_response(
        0, "m", "a", 3, 5_000, frozenset({(uuid, 1), (uuid, 0)})
    )
    nothing = codec.encode_heartbeat_response(25, None, None, 0, 0, None)

    for version in VERSIONS:
        kind = kio_codec.response_class(HEARTBEAT, version)
        answer = kio_codec.decode(kind, body)
        (topic,) = answer.assignment.topic_partitions
        assert (answer.error_message, answer.member_id, answer.member_epoch) == ("m", "a", 3)
        assert (topic.topic_id, topic.partitions) == (uuid, (0, 1))
        assert kio_codec.decode(kind, nothing).assignment is None


@pytest.mark.parametrize("version", VERSIONS)
def test_descriptions_are_asked_for_and_encoded(version: int) -> None:
    entity, body = request_body(DESCRIBE, version, with_nulls=False)
    request = codec.decode_describe(version, memoryview(body))
    assert request == codec.DescribeRequest(
        list(entity.group_ids), entity.include_authorized_operations
    )

    uuid, gone = UUID(int=7), UUID(int=8)
    member = codec.DescribedMember(
        "a", "i", None, 3, "c", "/h", ["t"], "", frozenset({(uuid, 1)}), frozenset({(gone, 2)})
    )
    group = codec.DescribedGroup(
        0, None, "g", "Stable", 4, 3, "uniform", [member], {uuid: "t"}, 264
    )
    answer = kio_codec.decode(
        kio_codec.response_class(DESCRIBE, version),
        codec.encode_describe_response(version, [group]),
    )

    (described,) = answer.groups
    (shown,) = described.members
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == (
        "Stable", 4, 3
    )  # fmt: skip
    assert described.authorized_operations == 264
    assert (shown.member_id, shown.instance_id, shown.rack_id) == ("a", "i", None)
    assert [
        (topic.topic_id, topic.topic_name, topic.partitions)
        for part in (shown.assignment, shown.target_assignment)
        for topic in part.topic_partitions
    ] == [(uuid, "t", (1,)), (gone, "", (2,))]


def test_strings_have_the_bound_of_kafka() -> None:
    def describe(size_bytes: int) -> memoryview:
        group_id = encode_uvarint(size_bytes + 1) + b"g" * size_bytes
        return memoryview(b"\x02" + group_id + b"\x00\x00")

    assert len(codec.decode_describe(0, describe(0x7FFF)).group_ids[0]) == 0x7FFF
    with pytest.raises(PeerError):
        codec.decode_describe(0, describe(0x8000))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("key", [HEARTBEAT, DESCRIBE])
def test_garbled_requests_are_refused(key: int, version: int) -> None:
    _, body = request_body(key, version, with_nulls=False)
    decode = codec.decode_heartbeat if key == HEARTBEAT else codec.decode_describe
    chance = random.Random(key * 10 + version)

    for end in range(len(body)):
        with pytest.raises(PeerError):
            decode(version, memoryview(body[:end]))
    for _ in range(2_000):
        changed = bytearray(body)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            decode(version, memoryview(changed))
        except PeerError:
            continue
