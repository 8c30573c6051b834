"""ElectLeaders: API key 43, versions 0 to 2.

v1  unclean elections (KIP-460)
v2  flexible encoding (KIP-482)

Every partition has one replica, which leads it: an election is never needed, and that is the
answer for each partition that is there.
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import ElectLeadersRequest, ElectLeadersResponse

from adapters.kafka.access.authorization import check_cluster
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import Unauthorized
from gateway.model import TopicName

API_KEY: Final = 43
VERSIONS: Final = range(3)

_Topic: TypeAlias = ElectLeadersResponse.ReplicaElectionResult
_Partition: TypeAlias = ElectLeadersResponse.ReplicaElectionResult.PartitionResult


def handle(
    request: ElectLeadersRequest, session: Session, version: int
) -> ElectLeadersResponse:
    """Say that the leaders are those that are wanted."""
    try:
        check_cluster(session, Operation.ALTER)
    except Unauthorized as error:
        return ElectLeadersResponse(
            version=version, error_code=code_of(error), replica_election_results=[]
        )
    # For all partitions only those that needed an election are listed, of which there are none.
    asked = request.topic_partitions or []
    results = [
        _Topic(
            topic=topic.topic,
            partition_result=[_answer(session, topic.topic, n) for n in topic.partitions],
        )
        for topic in asked
    ]
    return ElectLeadersResponse(
        version=version, error_code=ErrorCode.NONE, replica_election_results=results
    )


def _answer(session: Session, topic_name: str, number: int) -> _Partition:
    topic = session.node.topics.find(TopicName(session.namespace, topic_name))
    code, message = ErrorCode.ELECTION_NOT_NEEDED, "The partition has one replica, its leader."
    if topic is None or not 0 <= number < len(topic.partition_ids):
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic or partition."
    return _Partition(partition_id=number, error_code=code, error_message=message)
