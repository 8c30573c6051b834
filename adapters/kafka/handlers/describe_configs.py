"""DescribeConfigs: API key 32, versions 1 to 4.

v1  synonyms (KIP-226)
v3  documentation and types (KIP-569)
v4  flexible encoding (KIP-482)
"""

from collections.abc import Awaitable
from typing import Final, TypeAlias

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.codec import encode_count
from adapters.kafka.codecs import schema_codec
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.node.large_requests import yield_to_loop
from adapters.kafka.resource_configs.broker_configs import describe_broker
from adapters.kafka.resource_configs.config_resources import (
    WHOLE_CLUSTER,
    ConfigResource,
    check_broker_resource,
    check_kind,
    check_topic_resource,
)
from adapters.kafka.resource_configs.group_configs import describe_group
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, public_text
from gateway.topics.configs import ConfigEntry

API_KEY: Final = 32
VERSIONS: Final = range(1, 5)
RESOURCES_AT_ONCE: Final = 20  # with 50 configs each
_THROTTLE_BYTES: Final = 4

_Result: TypeAlias = DescribeConfigsResponse.DescribeConfigsResult
_Config: TypeAlias = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult


def handle(
    request: DescribeConfigsRequest, session: Session, version: int
) -> DescribeConfigsResponse | Awaitable[bytes]:
    """Return the configs of topics, groups and this broker."""
    if len(request.resources) > RESOURCES_AT_ONCE:
        return handle_large(request, session, version)
    results = [_answer(asked, request, session) for asked in request.resources]
    return DescribeConfigsResponse(version=version, results=results)


async def handle_large(
    request: DescribeConfigsRequest, session: Session, version: int
) -> bytes:
    """Do as ``handle``, encoding ``RESOURCES_AT_ONCE`` resources per turn of the loop.

    Keeping the configs of 10,000 topics until all are encoded would take 100 MB, and much time
    of the garbage collector.
    """
    flexible = schema_codec.is_flexible(API_KEY, version)
    tags = b"\x00" if flexible else b""
    encoded: list[bytes] = []
    resources = request.resources
    for start in range(0, len(resources), RESOURCES_AT_ONCE):
        some = resources[start : start + RESOURCES_AT_ONCE]
        results = [_answer(asked, request, session) for asked in some]
        response = DescribeConfigsResponse(version=version, results=results)
        body = schema_codec.encode_response(response, version)
        head_bytes = _THROTTLE_BYTES + len(encode_count(len(some), flexible=flexible))
        encoded.append(bytes(body[head_bytes : len(body) - len(tags)]))
        await yield_to_loop()
    count = encode_count(len(resources), flexible=flexible)
    return b"".join([bytes(_THROTTLE_BYTES), count, *encoded, tags])


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
    wanted = set(asked.configuration_keys or ())  # null and empty both request all
    result.configs = [
        _config(entry, request) for entry in entries if not wanted or entry.name in wanted
    ]
    return result


def _entries(session: Session, resource_type: int, name: str) -> list[ConfigEntry]:
    kind = check_kind(resource_type)
    if kind is ConfigResource.GROUP:
        return describe_group(session, name)
    if kind is ConfigResource.TOPIC:
        check_topic_resource(name)
        topic = topic_for(session, name, Operation.DESCRIBE_CONFIGS)
        return session.node.topics.describe_configs(topic)
    check_broker_resource(session, name, Operation.DESCRIBE_CONFIGS)
    # Defaults of all brokers can only be set at runtime, which is not supported.
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
