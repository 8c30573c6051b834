"""DeleteShareGroupOffsets: API key 92, version 0 (KIP-932). The group must have no members."""

from typing import Final

from adapters.kafka.access.authorization import ordinary_topic_for
from adapters.kafka.codecs.share_offsets_codec import (
    NO_TOPIC_ID,
    DeletedTopic,
    DeleteOffsetsRequest,
    decode_delete,
    encode_delete_response,
)
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.errors import GatewayError, public_text
from gateway.groups.model import GroupName

API_KEY: Final = 92
VERSIONS: Final = range(1)

decode = decode_delete


async def handle(
    request: DeleteOffsetsRequest,
    session: Session,
    version: int,  # noqa: ARG001 - there is one
) -> bytes:
    """Forget a group's positions in topics; return when that is durable."""
    name = group_name(session, request.group_id)
    try:
        check_group(session, Operation.DELETE, request.group_id)
        session.node.shares.check_idle(name)
    except GatewayError as error:
        return encode_delete_response(
            [], error_code=group_code_of(error), error_message=public_text(error)
        )
    return encode_delete_response(
        [await _delete(session, name, topic_name) for topic_name in request.topics]
    )


async def _delete(session: Session, name: GroupName, topic_name: str) -> DeletedTopic:
    topic_id = NO_TOPIC_ID
    try:
        topic = ordinary_topic_for(session, topic_name, Operation.READ)
        topic_id = topic.uuid
        await session.node.shares.delete_offsets(name, topic)
    except GatewayError as error:
        return DeletedTopic(topic_name, topic_id, code_of(error), public_text(error))
    return DeletedTopic(topic_name, topic_id, ErrorCode.NONE, None)
