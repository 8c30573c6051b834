"""AlterConfigs: API key 33, versions 0 to 2. Replaces all overrides of a topic or group.

v2  flexible encoding (KIP-482)

Resources and authorization: ``resource_configs.config_resources``. Newer clients use
IncrementalAlterConfigs (KIP-339).
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import AlterConfigsRequest, AlterConfigsResponse

from adapters.kafka.errors import ErrorCode, Refused
from adapters.kafka.resource_configs.config_resources import alter_each
from adapters.kafka.resource_configs.group_configs import alter_group
from adapters.kafka.session import Session
from gateway.shares.group_configs import SPECS
from gateway.topics.manager import Topic

API_KEY: Final = 33
VERSIONS: Final = range(3)

_Asked: TypeAlias = AlterConfigsRequest.AlterConfigsResource
_Result: TypeAlias = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    request: AlterConfigsRequest, session: Session, version: int
) -> AlterConfigsResponse:
    """Replace the overrides of topics and groups; each has a result of its own."""

    async def alter(asked: _Asked, topic: Topic) -> None:
        changes = _values(asked)
        await session.node.topics.alter_configs(
            topic.name, changes, replace=True, validate_only=request.validate_only
        )

    async def change_group(asked: _Asked) -> None:
        changes = {**dict.fromkeys(SPECS), **_values(asked)}
        await alter_group(session, asked.resource_name, changes, dry=request.validate_only)

    results = await alter_each(
        request.resources,
        session,
        alter,
        change_group,
        _Result,
        dry=request.validate_only,
    )
    return AlterConfigsResponse(version=version, responses=results)


def _values(asked: _Asked) -> dict[str, str]:
    if null := [config.name for config in asked.configs if config.value is None]:
        msg = f"Null value not supported for : {null[0][:80]}"
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    values: dict[str, str] = {config.name: config.value for config in asked.configs}
    if len(values) < len(asked.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    return values
