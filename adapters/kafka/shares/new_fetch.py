"""A new ShareFetch: its checks, its session, and the request that is pending then."""

import asyncio
from functools import partial
from typing import NamedTuple

from adapters.kafka.codecs.share_fetch_codec import ShareFetchRequest, encode_fetch_response
from adapters.kafka.errors import ErrorCode, Refused, code_of
from adapters.kafka.fetching.ports import FetchReply
from adapters.kafka.node.share_sessions import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    SessionKey,
    ShareSession,
)
from adapters.kafka.session import Session
from adapters.kafka.shares.acknowledgements import Acknowledgements
from adapters.kafka.shares.pending_fetch import PendingShareFetch
from adapters.kafka.shares.sessions import check_renewal, session_key
from gateway.errors import GatewayError, as_value, public_text


class NewShareFetch(NamedTuple):
    """A fetch whose session is found; acknowledgements come first, then ``start``."""

    pending: PendingShareFetch
    acknowledgements: Acknowledgements
    session: Session
    share_session: ShareSession
    is_last: bool

    def start(self) -> None:
        """Fetch; with the last request of a session the session ends."""
        ended = None
        if self.is_last:
            ended = partial(self.session.node.share_sessions.end, self.share_session)
        self.pending.start(self.acknowledgements, ended)


def new_share_fetch(
    request: ShareFetchRequest, session: Session, reply: FetchReply
) -> NewShareFetch | None:
    """Return the fetch of a request; None if it was answered with an error."""
    try:
        key = session_key(session, request.group_id, request.member_id)
        _check(request, session, key)
        share_session = _find_session(request, session, key)
    except GatewayError as error:
        _refuse(as_value(error), request, session, reply)
        return None
    is_last = request.epoch == CLOSE_EPOCH
    acknowledgements = Acknowledgements(
        session, key.group, share_session.holder, renews=request.renews
    )
    pending = PendingShareFetch(
        request, session, reply, share_session, fetches=not (is_last or request.renews)
    )
    return NewShareFetch(pending, acknowledgements, session, share_session, is_last)


def _check(request: ShareFetchRequest, session: Session, key: SessionKey) -> None:
    limits = (
        request.max_wait_ms,
        request.bytes_min,
        request.bytes_max,
        request.records_max,
    )
    if request.renews and any(limits):
        msg = "A request that renews locks fetches nothing: its limits must be 0."
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    has_acknowledgements = any(
        asked.batches for _, partitions in request.topics for asked in partitions
    )
    if request.epoch == OPEN_EPOCH and has_acknowledgements:
        msg = "The first request of a share session cannot acknowledge."
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    check_renewal(session, key, renews=request.renews)


def _find_session(
    request: ShareFetchRequest, session: Session, key: SessionKey
) -> ShareSession:
    node = session.node
    sessions = node.share_sessions
    if request.epoch == OPEN_EPOCH:
        share_session = sessions.open(key, session, node.shares.new_holder())
    else:
        share_session = sessions.use(key, session, request.epoch)
    if request.epoch != CLOSE_EPOCH:
        sessions.add(
            share_session,
            [
                (topic_id, asked.number)
                for topic_id, partitions in request.topics
                for asked in partitions
            ],
        )
        for topic_id, numbers in request.forgotten:
            for number in numbers:
                sessions.forget(share_session, (topic_id, number))
    return share_session


def _refuse(
    error: GatewayError, request: ShareFetchRequest, session: Session, reply: FetchReply
) -> None:
    """Answer with an error; when there are too many sessions, after the client's wait."""
    code = code_of(error)
    body = encode_fetch_response([], error_code=code, error_message=public_text(error))
    if code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
        reply(body)
        return
    wait_ms = min(max(request.max_wait_ms, 0), session.node.config.fetch_wait_ms_max)

    def answer() -> None:
        reply.cancel = reply.hurry = None
        timer.cancel()
        reply(body)

    timer = asyncio.get_running_loop().call_later(wait_ms / 1000, reply.guard, answer)
    reply.cancel = timer.cancel
    reply.hurry = answer
