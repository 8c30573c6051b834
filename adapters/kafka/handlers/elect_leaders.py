"""ElectLeaders: API key 43, versions 0 to 2.

v1  unclean elections (KIP-460)
v2  flexible encoding (KIP-482)

Every partition has one replica, its leader, so an election is never needed: the result for every
existing partition is ELECTION_NOT_NEEDED.
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
    """Return that no partition needs an election."""
    try:
        check_cluster(session, Operation.ALTER)
    except Unauthorized as error:
        return ElectLeadersResponse(
            version=version, error_code=code_of(error), replica_election_results=[]
        )
    # A request for all partitions lists only those that needed an election; there are none.
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
