"""AlterConfigs: API key 33, versions 0 to 2. Replaces all overrides of a topic.

v2  flexible encoding (KIP-482)

What can be altered, and by whom, is in ``adapters.kafka.config_resources``; clients that can,
use IncrementalAlterConfigs (KIP-339).
"""

from collections import Counter
from typing import Final, TypeAlias

from kafka.protocol.admin import AlterConfigsRequest, AlterConfigsResponse

from adapters.kafka.access import ordinary_topic_for
from adapters.kafka.config_resources import (
    ConfigResource,
    check_kind,
    check_topic_resource,
    refuse_broker_change,
)
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.session import Session
from gateway.auth import Operation
from gateway.errors import GatewayError

API_KEY: Final = 33
VERSIONS: Final = range(3)

_Asked: TypeAlias = AlterConfigsRequest.AlterConfigsResource
_Result: TypeAlias = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    request: AlterConfigsRequest, session: Session, version: int
) -> AlterConfigsResponse:
    """Replace the overrides of topics; each has its own outcome."""
    counts = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    results = []
    for asked in request.resources:
        code, message = ErrorCode.NONE, None
        try:
            if counts[asked.resource_type, asked.resource_name] > 1:
                msg = "Each resource must appear at most once."
                raise Refused(ErrorCode.INVALID_REQUEST, msg)
            await _alter(asked, session, dry=request.validate_only)
        except GatewayError as error:
            code, message = code_of(error), str(error)
        results.append(
            _Result(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    return AlterConfigsResponse(version=version, responses=results)


async def _alter(asked: _Asked, session: Session, *, dry: bool) -> None:
    if check_kind(asked.resource_type) is not ConfigResource.TOPIC:
        refuse_broker_change(session, asked.resource_name)
    check_topic_resource(asked.resource_name)
    topic = ordinary_topic_for(session, asked.resource_name, Operation.ALTER_CONFIGS)
    if null := [config.name for config in asked.configs if config.value is None]:
        msg = f"Null value not supported for : {null[0][:80]}"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    changes = {config.name: config.value for config in asked.configs}
    if len(changes) < len(asked.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    await session.node.topics.alter_configs(
        topic.name, changes, replace=True, validate_only=dry
    )
