"""DescribeCluster: API key 60, versions 0 to 2 (KIP-700).

v1  endpoint types (KIP-919); brokers only, no controllers
v2  fenced brokers (KIP-1073); there are none
"""

from typing import Final

from kafka.protocol.admin import DescribeClusterRequest, DescribeClusterResponse

from adapters.kafka.access.authorization import authorized_operations
from adapters.kafka.errors import ErrorCode
from adapters.kafka.metadata.broker_addresses import brokers
from adapters.kafka.session import Session
from gateway.auth.ports import CLUSTER, Operation, ResourceType

API_KEY: Final = 60
VERSIONS: Final = range(3)

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(
    request: DescribeClusterRequest, session: Session, version: int
) -> DescribeClusterResponse:
    """Return the cluster's id and brokers."""
    if request.endpoint_type != BROKERS:
        return _refusal(request.endpoint_type, version)
    placement = session.node.placement
    operations: frozenset[int] | None = None
    if request.include_cluster_authorized_operations:
        operations = frozenset()
        if session.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER):
            operations = authorized_operations(session, ResourceType.CLUSTER, CLUSTER)
    return DescribeClusterResponse(
        version=version,
        error_code=ErrorCode.NONE,
        endpoint_type=BROKERS,
        cluster_id=placement.cluster_id,
        controller_id=placement.node_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker.node_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                is_fenced=False,
            )
            for broker in brokers(session)
        ],
        authorized_operations=operations,
    )


def _refusal(endpoint_type: int, version: int) -> DescribeClusterResponse:
    code, message = (
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        f"Unknown endpoint type {endpoint_type}",
    )
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to a broker endpoint, not to a controller"
    return DescribeClusterResponse(
        version=version,
        error_code=code,
        error_message=message,
        endpoint_type=endpoint_type,
        cluster_id="",
        brokers=[],
    )
