"""IncrementalAlterConfigs: API key 44, versions 0 to 1 (KIP-339). Changes single overrides.

v1  flexible encoding (KIP-482)
"""

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeAlias

from kafka.protocol.admin import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

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
from gateway.errors import GatewayError, InvalidConfig
from gateway.topic_config_specs import ConfigType, split_list
from gateway.topic_configs import ConfigEntry

API_KEY: Final = 44
VERSIONS: Final = range(2)

_Asked: TypeAlias = IncrementalAlterConfigsRequest.AlterConfigsResource
_Result: TypeAlias = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
_Config: TypeAlias = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig


class Change(IntEnum):
    """``AlterConfigOp.OpType`` of the Java client."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    request: IncrementalAlterConfigsRequest, session: Session, version: int
) -> IncrementalAlterConfigsResponse:
    """Change single configs of topics; each resource has its own outcome."""
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
    return IncrementalAlterConfigsResponse(version=version, responses=results)


async def _alter(asked: _Asked, session: Session, *, dry: bool) -> None:
    if check_kind(asked.resource_type) is not ConfigResource.TOPIC:
        refuse_broker_change(session, asked.resource_name)
    check_topic_resource(asked.resource_name)
    topic = ordinary_topic_for(session, asked.resource_name, Operation.ALTER_CONFIGS)
    present = {entry.name: entry for entry in session.node.topics.describe_configs(topic)}
    changes: dict[str, str | None] = {}
    for config in asked.configs:
        if config.name in changes:
            raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        changes[config.name] = _new_value(config, present)
    await session.node.topics.alter_configs(topic.name, changes, validate_only=dry)


def _new_value(config: _Config, present: Mapping[str, ConfigEntry]) -> str | None:
    """Return what the config becomes; None is back to its default."""
    if config.config_operation == Change.DELETE:
        return None
    if config.value is None:
        msg = f"Null value not supported for : {config.name[:80]}"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    value: str = config.value
    if config.config_operation == Change.SET:
        return value
    if config.config_operation not in {Change.APPEND, Change.SUBTRACT}:
        msg = f"Unknown config operation {config.config_operation}"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    entry = present.get(config.name)
    if entry is None or entry.type is not ConfigType.LIST:
        verb = Change(config.config_operation).name
        msg = f"Can't {verb} to key {config.name[:80]} because its type is not LIST."
        raise InvalidConfig(msg)
    items, given = split_list(entry.value), split_list(value)
    if config.config_operation == Change.APPEND:
        return ",".join(items + [item for item in given if item not in items])
    return ",".join(item for item in items if item not in given)
