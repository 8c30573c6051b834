"""Answers to heartbeats of consumer groups (KIP-848) and share groups (KIP-932).

One that changed what is stored of the group waits until that is durable.
"""

import asyncio
from collections.abc import Awaitable, Callable

from adapters.kafka.codecs.consumer_group_codec import encode_heartbeat_response
from adapters.kafka.groups.coordinator import group_code_of
from adapters.kafka.session import Session
from gateway.errors import GatewayError, public_text
from gateway.futures import set_result_if_pending
from gateway.groups.consumer.model import HeartbeatResult


def answer_beat(
    session: Session, beat: Callable[[Callable[[HeartbeatResult | GatewayError], None]], object]
) -> bytes | Awaitable[bytes]:
    """Return the response to a heartbeat, at once where ``beat`` calls back before it returns."""
    answers: list[HeartbeatResult | GatewayError] = []
    future: asyncio.Future[HeartbeatResult | GatewayError] | None = None

    def answered(result: HeartbeatResult | GatewayError) -> None:
        if future is None:
            answers.append(result)
        else:
            set_result_if_pending(future, result)

    beat(answered)
    if answers:
        return encode_beat(session, answers[0])
    future = asyncio.get_running_loop().create_future()
    return _encode_later(session, future)


async def _encode_later(
    session: Session, future: "asyncio.Future[HeartbeatResult | GatewayError]"
) -> bytes:
    return encode_beat(session, await future)


def encode_beat(session: Session, result: HeartbeatResult | GatewayError) -> bytes:
    """Return the response body; both APIs have the same layout in all versions."""
    if isinstance(result, GatewayError):
        code = group_code_of(result)
        return encode_heartbeat_response(code, public_text(result), None, 0, 0, None)
    interval_ms = session.node.settings.groups.consumer_heartbeat_interval_ms
    return encode_heartbeat_response(
        0, None, result.member_id, result.epoch, interval_ms, result.assignment
    )
