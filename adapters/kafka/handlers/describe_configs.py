"""DescribeConfigs: API key 32, versions 1 to 4.

v1  synonyms (KIP-226)
v3  documentation and types (KIP-569)
v4  flexible encoding (KIP-482)
"""

from typing import Final, TypeAlias

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

from adapters.kafka.access import topic_for
from adapters.kafka.broker_configs import describe_broker
from adapters.kafka.config_resources import (
    WHOLE_CLUSTER,
    ConfigResource,
    check_broker_resource,
    check_kind,
    check_topic_resource,
)
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, public_text
from gateway.topics.configs import ConfigEntry

API_KEY: Final = 32
VERSIONS: Final = range(1, 5)

_Result: TypeAlias = DescribeConfigsResponse.DescribeConfigsResult
_Config: TypeAlias = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult


def handle(
    request: DescribeConfigsRequest, session: Session, version: int
) -> DescribeConfigsResponse:
    """Describe the configs of topics and of this broker."""
    results = [_answer(asked, request, session) for asked in request.resources]
    return DescribeConfigsResponse(version=version, results=results)


def _answer(
    asked: DescribeConfigsRequest.DescribeConfigsResource,
    request: DescribeConfigsRequest,
    session: Session,
) -> _Result:
    result = _Result(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[],
    )
    try:
        entries = _entries(session, asked.resource_type, asked.resource_name)
    except GatewayError as error:
        result.error_code, result.error_message = code_of(error), public_text(error)
        return result
    wanted = asked.configuration_keys  # null and empty both ask for all of them
    result.configs = [
        _config(entry, request) for entry in entries if not wanted or entry.name in wanted
    ]
    return result


def _entries(session: Session, resource_type: int, name: str) -> list[ConfigEntry]:
    if check_kind(resource_type) is ConfigResource.TOPIC:
        check_topic_resource(name)
        topic = topic_for(session, name, Operation.DESCRIBE_CONFIGS)
        return session.node.topics.describe_configs(topic)
    check_broker_resource(session, name, Operation.DESCRIBE_CONFIGS)
    # The defaults of all brokers are what was set while they run, which nothing can be here.
    return [] if name == WHOLE_CLUSTER else describe_broker(session)


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> _Config:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return _Config(
        name=entry.name,
        value=None if entry.is_sensitive else entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            _Config.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
