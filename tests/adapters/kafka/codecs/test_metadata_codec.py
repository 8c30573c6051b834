"""The codec of Metadata in every version, against a second codec (kio)."""

import dataclasses
from uuid import UUID

import pytest

from adapters.kafka.codecs import metadata_codec
from adapters.kafka.codecs.metadata_codec import (
    BrokerAddress,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from adapters.kafka.errors import ErrorCode
from tests.adapters.kafka.codecs import kio_codec

ID = UUID(int=77)
BROKERS = [BrokerAddress(11, "here", 1201, "rack-ä"), BrokerAddress(12, "there", 1301)]
TOPICS = [
    MetadataResponseTopic(
        ErrorCode.NONE,
        "first",
        ID,
        is_internal=True,
        leader_id=11,
        leader_epochs=(5, 6, 7),
        authorized_operations=264,
    ),
    MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "second"),
]


@pytest.mark.parametrize("version", metadata_codec.VERSIONS)
def test_requests_are_read_as_a_second_codec_wrote_them(version: int) -> None:
    kind = kio_codec.request_class(metadata_codec.API_KEY, version)
    theirs = kio_codec.sample(kind, with_nulls=False)

    ours = metadata_codec.decode_request(version, kio_codec.encode(theirs))

    assert ours.topics == tuple(
        MetadataRequestTopic(getattr(topic, "topic_id", None), topic.name)
        for topic in theirs.topics
    )
    assert ours.allow_auto_topic_creation == getattr(theirs, "allow_auto_topic_creation", True)
    for name in (
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
    ):
        assert getattr(ours, name) == getattr(theirs, name, False)


@pytest.mark.parametrize("version", metadata_codec.VERSIONS)
def test_all_topics_are_asked_for_by_empty_in_v0_and_by_null_later(version: int) -> None:
    kind = kio_codec.request_class(metadata_codec.API_KEY, version)
    sample = kio_codec.sample(kind, with_nulls=False)
    empty = kio_codec.encode(dataclasses.replace(sample, topics=()))

    asked = metadata_codec.decode_request(version, empty).topics

    assert asked == (None if version == 0 else ())
    if version:
        null = kio_codec.encode(dataclasses.replace(sample, topics=None))
        assert metadata_codec.decode_request(version, null).topics is None


@pytest.mark.parametrize("version", metadata_codec.VERSIONS)
def test_responses_are_written_as_a_second_codec_reads_them(version: int) -> None:
    body = b"".join(
        (
            metadata_codec.encode_head(version, BROKERS, "cluster-1", 12),
            metadata_codec.encode_topics(
                version, [metadata_codec.encode_topic(version, topic) for topic in TOPICS]
            ),
            metadata_codec.encode_tail(version, 1792),
        )
    )

    kind = kio_codec.response_class(metadata_codec.API_KEY, version)
    got = kio_codec.plain(kio_codec.decode(kind, body))

    expected = {
        "throttletime": 0,
        "brokers": [
            {"nodeid": 11, "host": "here", "port": 1201, "rack": "rack-ä"},
            {"nodeid": 12, "host": "there", "port": 1301, "rack": None},
        ],
        "clusterid": "cluster-1",
        "controllerid": 12,
        "authorizedoperations": 1792,
        "errorcode": 0,
        "topics": [
            {
                "errorcode": 0,
                "name": "first",
                "topicid": ID,
                "isinternal": True,
                "authorizedoperations": 264,
                "partitions": [
                    {
                        "errorcode": 0,
                        "partitionindex": number,
                        "leaderid": 11,
                        "leaderepoch": number + 5,
                        "replicanodes": [11],
                        "isrnodes": [11],
                        "offlinereplicas": [],
                    }
                    for number in range(3)
                ],
            },
            {
                "errorcode": 3,
                "name": "second",
                "topicid": None,
                "isinternal": False,
                "authorizedoperations": -(2**31),
                "partitions": [],
            },
        ],
    }
    assert got == _restrict(expected, got)


def _restrict(expected: object, got: object) -> object:
    """Return ``expected`` without the fields that the version does not have."""
    if isinstance(expected, dict) and isinstance(got, dict):
        return {key: _restrict(expected[key], value) for key, value in got.items()}
    if isinstance(expected, list) and isinstance(got, list):
        return [_restrict(one, other) for one, other in zip(expected, got, strict=True)]
    return expected


@pytest.mark.parametrize("version", [10, 12])
def test_a_topic_without_a_name_is_null_only_where_null_is_allowed(version: int) -> None:
    topic = MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, ID)
    body = b"".join(
        (
            metadata_codec.encode_head(version, BROKERS, "c", 1),
            metadata_codec.encode_topics(
                version, [metadata_codec.encode_topic(version, topic)]
            ),
            metadata_codec.encode_tail(version),
        )
    )

    kind = kio_codec.response_class(metadata_codec.API_KEY, version)
    got = kio_codec.decode(kind, body).topics[0]

    assert (got.name, got.topic_id) == (None if version == 12 else "", ID)
