"""Large admin requests: the response is the same as without splitting."""

from typing import Any

import pytest
from kafka.protocol.admin import (
    AlterConfigsRequest,
    DeleteRecordsRequest,
    DescribeProducersRequest,
    ElectLeadersRequest,
)
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from adapters.kafka.handlers import (
    alter_configs,
    delete_records,
    describe_producers,
    elect_leaders,
    offset_for_leader_epoch,
)
from adapters.kafka.node.large_requests import SLICE_ELEMENTS
from adapters.kafka.requests.split_requests import handle_split
from gateway.errors import PeerError
from tests.adapters.kafka.handlers.handler_fixture import Rig

COUNTS = [0, 1, SLICE_ELEMENTS - 2, 3 * SLICE_ELEMENTS, 2, 2 * SLICE_ELEMENTS - 1, 0]


def delete_records_request() -> Any:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    part = topic.DeleteRecordsPartition
    return DeleteRecordsRequest(
        version=1,
        timeout_ms=1,
        topics=[
            topic(
                name=f"t{at}",
                partitions=[part(partition_index=n, offset=0) for n in range(count)],
            )
            for at, count in enumerate(COUNTS)
        ],
    )


def epochs_request() -> Any:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    part = topic.OffsetForLeaderPartition
    return OffsetForLeaderEpochRequest(
        version=3,
        topics=[
            topic(
                topic=f"t{at}",
                partitions=[
                    part(partition=n, current_leader_epoch=-1, leader_epoch=1)
                    for n in range(count)
                ],
            )
            for at, count in enumerate(COUNTS)
        ],
    )


def producers_request() -> Any:
    topic = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(
        version=0,
        topics=[
            topic(name=f"t{at}", partition_indexes=list(range(count)))
            for at, count in enumerate(COUNTS)
        ],
    )


def elections_request() -> Any:
    topic = ElectLeadersRequest.TopicPartitions
    return ElectLeadersRequest(
        version=1,
        election_type=0,
        timeout_ms=1,
        topic_partitions=[
            topic(topic=f"t{at}", partitions=list(range(count)))
            for at, count in enumerate(COUNTS)
        ],
    )


CASES: dict[str, tuple[Any, Any, str, str]] = {
    "DeleteRecords": (delete_records, delete_records_request, "topics", "partitions"),
    "OffsetForLeaderEpoch": (offset_for_leader_epoch, epochs_request, "topics", "partitions"),
    "DescribeProducers": (describe_producers, producers_request, "topics", "partitions"),
    "ElectLeaders": (
        elect_leaders,
        elections_request,
        "replica_election_results",
        "partition_result",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_was_cut_is_answered_as_one(rig: Rig, case: str) -> None:
    module, make, answered, parts = CASES[case]
    sizes: list[int] = []

    def counted(request: Any, session: Any, version: int) -> Any:
        asked = getattr(request, "topics", None) or request.topic_partitions
        field = "partition_indexes" if case == "DescribeProducers" else "partitions"
        sizes.append(sum(1 + len(getattr(topic, field)) for topic in asked))
        return module.handle(request, session, version)

    request = make()
    response = await handle_split(
        module.API_KEY, counted, request, rig.session, request.version
    )

    found = [len(getattr(one, parts)) for one in getattr(response, answered)]
    assert found == COUNTS
    assert max(sizes) <= SLICE_ELEMENTS
    assert len(sizes) > 1


async def test_an_element_that_is_too_large_by_itself_is_refused(rig: Rig) -> None:
    resource = AlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=str(n), value="1") for n in range(SLICE_ELEMENTS + 1)
    ]
    asked = resource(resource_type=2, resource_name="t", configs=configs)
    request = AlterConfigsRequest(version=1, resources=[asked], validate_only=True)
    with pytest.raises(PeerError):
        await handle_split(33, alter_configs.handle, request, rig.session, 1)
