"""ShareAcknowledge: API key 79, versions 1 to 2 (KIP-932).

v2  renewed locks (KIP-1222)

Of a partition all is acknowledged, or nothing. The response is sent when that is durable.
"""

import asyncio
from functools import partial
from typing import Final
from uuid import UUID

from adapters.kafka.codecs.share_fetch_codec import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    decode_acknowledge,
    encode_acknowledge_response,
)
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.metadata.broker_addresses import other_brokers
from adapters.kafka.node.large_requests import topic_slices, yield_to_loop
from adapters.kafka.node.share_sessions import CLOSE_EPOCH, OPEN_EPOCH, ShareSession
from adapters.kafka.session import Session
from adapters.kafka.shares.acknowledgements import Acknowledgements
from adapters.kafka.shares.sessions import check_renewal, session_key
from gateway.errors import GatewayError, public_text
from gateway.futures import set_result_if_pending

API_KEY: Final = 79
VERSIONS: Final = range(1, 3)

decode = decode_acknowledge


async def handle(request: ShareAcknowledgeRequest, session: Session, version: int) -> bytes:
    """Settle what a member has acquired, or renew its locks."""
    try:
        share_session = _find_session(request, session)
    except GatewayError as error:
        return encode_acknowledge_response(
            version, [], error_code=code_of(error), error_message=public_text(error)
        )
    acknowledgements = Acknowledgements(
        session, share_session.key.group, share_session.holder, renews=request.renews
    )
    for index, topics in enumerate(topic_slices(request.topics)):
        if index:
            await yield_to_loop()
        acknowledgements.take(topics)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    acknowledgements.end(partial(set_result_if_pending, done, None))
    await done
    if request.epoch == CLOSE_EPOCH:
        session.node.share_sessions.end(share_session)
    results: dict[UUID, list[ShareAcknowledgeResult]] = {}
    for one in acknowledgements.outcomes:
        result = ShareAcknowledgeResult(one.number, one.code, one.message, one.leader)
        results.setdefault(one.topic_id, []).append(result)
    settings = session.node.shares.settings(share_session.key.group)
    return encode_acknowledge_response(
        version,
        list(results.items()),
        lock_ms=settings.queue.lease_ms,
        nodes=other_brokers(session),
    )


def _find_session(request: ShareAcknowledgeRequest, session: Session) -> ShareSession:
    key = session_key(session, request.group_id, request.member_id)
    check_renewal(session, key, renews=request.renews)
    if request.epoch == OPEN_EPOCH:
        msg = "The first request of a share session cannot acknowledge."
        raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, msg)
    return session.node.share_sessions.use(key, session, request.epoch)
