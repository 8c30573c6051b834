"""IncrementalAlterConfigs: API key 44, versions 0 to 1 (KIP-339). Changes single overrides.

v1  flexible encoding (KIP-482)
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeAlias

from kafka.protocol.admin import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from adapters.kafka.errors import ErrorCode, Refused
from adapters.kafka.resource_configs.config_resources import alter_each
from adapters.kafka.resource_configs.group_configs import alter_group, describe_group
from adapters.kafka.session import Session
from gateway.errors import InvalidConfig
from gateway.topics.config_specs import ConfigType, split_list
from gateway.topics.configs import ConfigEntry
from gateway.topics.manager import Topic

API_KEY: Final = 44
VERSIONS: Final = range(2)

_Asked: TypeAlias = IncrementalAlterConfigsRequest.AlterConfigsResource
_Result: TypeAlias = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
_Config: TypeAlias = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig


class OpType(IntEnum):
    """``AlterConfigOp.OpType`` of the Java client."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    request: IncrementalAlterConfigsRequest, session: Session, version: int
) -> IncrementalAlterConfigsResponse:
    """Change single configs of topics and groups; each resource has a result of its own."""

    async def alter(asked: _Asked, topic: Topic) -> None:
        changes = _changes(asked, session.node.topics.describe_configs(topic))
        await session.node.topics.alter_configs(
            topic.name, changes, validate_only=request.validate_only
        )

    async def change_group(asked: _Asked) -> None:
        name = asked.resource_name
        changes = _changes(asked, describe_group(session, name))
        await alter_group(session, name, changes, dry=request.validate_only)

    results = await alter_each(
        request.resources,
        session,
        alter,
        change_group,
        _Result,
        dry=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(version=version, responses=results)


def _changes(asked: _Asked, entries: Sequence[ConfigEntry]) -> dict[str, str | None]:
    """Return the changes of a resource with these configs."""
    present = {entry.name: entry for entry in entries}
    changes: dict[str, str | None] = {}
    for config in asked.configs:
        if config.name in changes:
            raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        changes[config.name] = _new_value(config, present)
    for name in changes.keys() - present.keys():
        if changes[name] is None:  # deleting an unknown config changes nothing
            del changes[name]
    return changes


def _new_value(config: _Config, present: Mapping[str, ConfigEntry]) -> str | None:
    """Return the new value of a config; None restores the default."""
    if config.config_operation == OpType.DELETE:
        return None
    if config.value is None:
        msg = f"Null value not supported for : {config.name[:80]}"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    value: str = config.value
    if config.config_operation == OpType.SET:
        return value
    if config.config_operation not in {OpType.APPEND, OpType.SUBTRACT}:
        msg = f"Unknown config operation {config.config_operation}"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    entry = present.get(config.name)
    if entry is None or entry.type is not ConfigType.LIST:
        verb = OpType(config.config_operation).name
        msg = f"Can't {verb} to key {config.name[:80]} because its type is not LIST."
        raise InvalidConfig(msg)
    items, given = split_list(entry.value), split_list(value)
    if config.config_operation == OpType.APPEND:
        return ",".join(items + [item for item in given if item not in items])
    return ",".join(item for item in items if item not in given)
