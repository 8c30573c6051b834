"""ListGroups: API key 16, versions 0 to 5.

v1  throttle_time_ms
v3  flexible encoding (KIP-482)
v4  states_filter, and the state of each group (KIP-518)
v5  types_filter, and the type of each group: classic, consumer (KIP-848) or share
    (KIP-932)
"""

from typing import Final

from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse

from adapters.kafka.errors import ErrorCode
from adapters.kafka.groups.coordinator import group_code_of
from adapters.kafka.session import Session
from gateway.auth.ports import CLUSTER, Operation, ResourceType
from gateway.errors import GatewayError
from gateway.groups.consumer.group import ConsumerGroup
from gateway.groups.model import GroupState

API_KEY: Final = 16
VERSIONS: Final = range(6)

STATES_FROM: Final = 4
TYPES_FROM: Final = 5
CLASSIC: Final = "classic"


def handle(request: ListGroupsRequest, session: Session, version: int) -> ListGroupsResponse:
    """Return the groups that the session may describe; filters ignore case, as in Kafka."""
    states = _lowered(request.states_filter) if version >= STATES_FROM else set()
    types = _lowered(request.types_filter) if version >= TYPES_FROM else set()
    sees_all = session.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER)
    groups = session.node.groups
    try:
        names = groups.names(session.namespace)
    except GatewayError as error:
        return ListGroupsResponse(version=version, error_code=group_code_of(error), groups=[])
    listed = []
    for name in names:
        group = groups.find(name)
        group_type = group.protocol.name if isinstance(group, ConsumerGroup) else CLASSIC
        if types and group_type not in types:
            continue
        state = GroupState.EMPTY if group is None else group.state
        if states and state.value.lower() not in states:
            continue
        if not sees_all and not session.allows(
            Operation.DESCRIBE, ResourceType.GROUP, name.name
        ):
            continue
        listed.append(
            ListGroupsResponse.ListedGroup(
                group_id=name.name,
                protocol_type=(group.protocol_type if group is not None else None) or "",
                group_state=state.value,
                group_type=group_type,
            )
        )
    return ListGroupsResponse(version=version, error_code=ErrorCode.NONE, groups=listed)


def _lowered(words: list[str] | None) -> set[str]:
    return {word.lower() for word in words or ()}
