"""AlterShareGroupOffsets: API key 91, version 0 (KIP-932). The group must have no members."""

from typing import Final

from adapters.kafka.access.authorization import ordinary_topic_for
from adapters.kafka.codecs.share_offsets_codec import (
    NO_TOPIC_ID,
    AlteredTopic,
    AlterOffsetsRequest,
    decode_alter,
    encode_alter_response,
)
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, public_text
from gateway.groups.model import GroupName

API_KEY: Final = 91
VERSIONS: Final = range(1)

decode = decode_alter


async def handle(
    request: AlterOffsetsRequest,
    session: Session,
    version: int,  # noqa: ARG001 - there is one
) -> bytes:
    """Let a group begin at other offsets; return when that is durable."""
    name = group_name(session, request.group_id)
    try:
        check_group(session, Operation.READ, request.group_id)
        session.node.shares.check_idle(name)
    except GatewayError as error:
        return encode_alter_response(
            [], error_code=group_code_of(error), error_message=public_text(error)
        )
    results = [
        await _alter(session, name, topic_name, partitions)
        for topic_name, partitions in request.topics
    ]
    return encode_alter_response(results)


async def _alter(
    session: Session, name: GroupName, topic_name: str, partitions: list[tuple[int, int]]
) -> AlteredTopic:
    try:
        topic = ordinary_topic_for(session, topic_name, Operation.READ)
    except GatewayError as error:
        code, message = code_of(error), public_text(error)
        failed = [(number, code, message) for number, _ in partitions]
        return AlteredTopic(topic_name, NO_TOPIC_ID, failed)
    results: list[tuple[int, int, str | None]] = []
    for number, offset in partitions:
        try:
            await session.node.shares.alter_offset(name, topic, number, offset)
        except GatewayError as error:
            results.append((number, code_of(error), public_text(error)))
        else:
            results.append((number, ErrorCode.NONE, None))
    return AlteredTopic(topic_name, topic.uuid, results)
