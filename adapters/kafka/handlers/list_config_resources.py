"""ListConfigResources: API key 74, versions 0 to 1 (KIP-1142).

v0  client metrics only; there are none (formerly ListClientMetricsResources, KIP-714)
v1  all kinds of resources; an empty list requests all
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import ListConfigResourcesRequest, ListConfigResourcesResponse

from adapters.kafka.access.authorization import check_cluster, is_visible
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.resource_configs.config_resources import ConfigResource
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import Unauthorized

API_KEY: Final = 74
VERSIONS: Final = range(2)

_KNOWN: Final = frozenset(ConfigResource) - {ConfigResource.UNKNOWN}
_Resource: TypeAlias = ListConfigResourcesResponse.ConfigResource


def handle(
    request: ListConfigResourcesRequest, session: Session, version: int
) -> ListConfigResourcesResponse:
    """Return the topics, brokers and groups whose configs can be described or were set."""
    kinds = {ConfigResource.CLIENT_METRICS} if version == 0 else set(request.resource_types)
    code = ErrorCode.NONE
    try:
        check_cluster(session, Operation.DESCRIBE_CONFIGS)
    except Unauthorized as error:
        code = code_of(error)
    if kinds - _KNOWN:
        code = ErrorCode.UNSUPPORTED_VERSION
    resources = _resources(kinds or set(_KNOWN), session) if code is ErrorCode.NONE else []
    return ListConfigResourcesResponse(
        version=version, error_code=code, config_resources=resources
    )


def _resources(kinds: set[int], session: Session) -> list[_Resource]:
    names: list[tuple[ConfigResource, str]] = []
    if ConfigResource.TOPIC in kinds:
        topics = session.node.topics.topics(session.namespace)
        names += [(ConfigResource.TOPIC, t.name.name) for t in topics if is_visible(session, t)]
    if ConfigResource.GROUP in kinds:
        names += [
            (ConfigResource.GROUP, group.name)
            for group in session.node.shares.configs.names(session.namespace)
        ]
    if ConfigResource.BROKER in kinds:
        nodes = session.node.placement.nodes()
        names += [(ConfigResource.BROKER, str(node.node_id)) for node in nodes]
    return [_Resource(resource_name=name, resource_type=kind) for kind, name in names]
