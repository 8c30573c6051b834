"""Heartbeat and OffsetCommit against kio's codec, in every version."""

import importlib
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.kafka.codecs.group_codec import (
    decode_heartbeat_request,
    decode_offset_commit_request,
    encode_heartbeat_response,
    encode_offset_commit_response,
)
from adapters.kafka.handlers import heartbeat, offset_commit
from gateway.errors import PeerError
from tests.adapters.kafka.codecs import kio_codec

TOPIC_ID = UUID("6f1c9b1e-0f6e-4b0c-9a8f-0123456789ab")
HEARTBEATS = list(heartbeat.VERSIONS)
COMMITS = list(offset_commit.VERSIONS)


def of_version(version: int, *fields: tuple[str, Any, int]) -> dict[str, Any]:
    """Return the fields (name, value, first version) of a version."""
    return {name: value for name, value, first in fields if version >= first}


def part_of(kind: Any, name: str) -> Any:
    """Return the class of a nested structure of a kio entity."""
    return getattr(importlib.import_module(kind.__module__), name)


@pytest.mark.parametrize("version", HEARTBEATS)
@pytest.mark.parametrize("instance_id", [None, "pod-1"])
def test_heartbeats_are_read(version: int, instance_id: str | None) -> None:
    kind = kio_codec.request_class(12, version)
    entity = kind(
        group_id="grüppe",
        generation_id=7,
        member_id="app-1",
        **of_version(version, ("group_instance_id", instance_id, 3)),
    )

    request = decode_heartbeat_request(version, memoryview(kio_codec.encode(entity)))

    expected_instance = instance_id if version >= 3 else None
    assert request == ("grüppe", 7, "app-1", expected_instance)


@pytest.mark.parametrize("version", HEARTBEATS)
def test_heartbeat_answers_are_read_by_others(version: int) -> None:
    kind = kio_codec.response_class(12, version)

    entity = kio_codec.decode(kind, encode_heartbeat_response(version, 27))

    assert entity.error_code == 27


def commit_entity(version: int, metadata: str | None) -> Any:
    kind = kio_codec.request_class(8, version)
    partition = part_of(kind, "OffsetCommitRequestPartition")
    topic = part_of(kind, "OffsetCommitRequestTopic")
    partitions = tuple(
        partition(
            partition_index=index,
            committed_offset=offset,
            committed_metadata=metadata,
            **of_version(version, ("committed_leader_epoch", 5, 6)),
        )
        for index, offset in [(0, 10), (70_000, 1 << 40)]
    )
    key = {"topic_id": TOPIC_ID} if version >= 10 else {"name": "orders.v1"}
    fields = of_version(version, ("group_instance_id", "pod-1", 7))
    if version <= 4:
        fields["retention_time"] = timedelta(milliseconds=86_400_000)
    return kind(
        group_id="g",
        generation_id_or_member_epoch=3,
        member_id="app-1",
        topics=(topic(**key, partitions=partitions),),
        **fields,
    )


@pytest.mark.parametrize("version", COMMITS)
@pytest.mark.parametrize("metadata", [None, "", "ñ"])
def test_commits_are_read(version: int, metadata: str | None) -> None:
    data = kio_codec.encode(commit_entity(version, metadata))

    request = decode_offset_commit_request(version, memoryview(data))

    epoch = 5 if version >= 6 else -1
    assert request.topics == [
        (
            TOPIC_ID if version >= 10 else "orders.v1",
            [(0, 10, epoch, metadata), (70_000, 1 << 40, epoch, metadata)],
        )
    ]
    assert request[:5] == (
        "g",
        3,
        "app-1",
        "pod-1" if version >= 7 else None,
        86_400_000 if version <= 4 else -1,
    )


@pytest.mark.parametrize("version", COMMITS)
def test_commit_answers_are_read_by_others(version: int) -> None:
    ref = TOPIC_ID if version >= 10 else "orders.v1"
    data = encode_offset_commit_response(version, [(ref, [(0, 0), (70_000, 12)]), (ref, [])])

    entity = kio_codec.decode(kio_codec.response_class(8, version), data)

    first, second = entity.topics
    assert (first.topic_id if version >= 10 else first.name) == ref
    assert [(p.partition_index, p.error_code) for p in first.partitions] == [
        (0, 0),
        (70_000, 12),
    ]
    assert second.partitions == ()


@pytest.mark.parametrize("version", COMMITS)
def test_cut_commits_are_refused(version: int) -> None:
    data = kio_codec.encode(commit_entity(version, "m"))
    tags = 1 if version >= 8 else 0  # the last byte, which nothing of ours needs

    for size in range(len(data) - tags):
        with pytest.raises(PeerError):
            decode_offset_commit_request(version, memoryview(data[:size]))


@given(version=st.sampled_from(COMMITS), data=st.binary(max_size=200))
def test_any_bytes_are_a_commit_or_refused(version: int, data: bytes) -> None:
    with suppress(PeerError):
        decode_offset_commit_request(version, memoryview(data))


@given(version=st.sampled_from(HEARTBEATS), data=st.binary(max_size=60))
def test_any_bytes_are_a_heartbeat_or_refused(version: int, data: bytes) -> None:
    with suppress(PeerError):
        decode_heartbeat_request(version, memoryview(data))
