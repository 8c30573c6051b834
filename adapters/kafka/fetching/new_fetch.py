"""Choice between full and incremental fetches, by a request's session id and epoch (KIP-227).

| session id | epoch | the request |
|---|---|---|
| any | -1 | is a full fetch without a session; a session of this id is removed |
| any | 0 | is a full fetch that makes a session; a session of this id is removed |
| of a session | the next one | is an incremental fetch; a session without partitions ends |
| of a session | another one | is refused: INVALID_FETCH_SESSION_EPOCH |
| unknown | not 0, not -1 | is refused: FETCH_SESSION_ID_NOT_FOUND |

A session is made from topic ids (v13 and later) or names; a request of the other kind is refused
with FETCH_SESSION_TOPIC_ID_ERROR. A refusal keeps the session as it is.
"""

from typing import Final

from adapters.kafka.codecs.fetch_codec import (
    TOPIC_IDS_FROM,
    FetchRequest,
    encode_fetch_response,
)
from adapters.kafka.errors import ErrorCode
from adapters.kafka.fetching.pending_fetch import PendingFetch
from adapters.kafka.fetching.ports import FetchReply
from adapters.kafka.fetching.session_fetch import SessionFetch
from adapters.kafka.node.fetch_session import FetchSession, next_epoch
from adapters.kafka.session import Session

NEW_SESSION: Final = 0
NO_SESSION: Final = -1


def new_fetch(
    request: FetchRequest, session: Session, version: int, reply: FetchReply
) -> PendingFetch | None:
    """Return the fetch of a request; None if it is refused, with the reply sent."""
    cache = session.node.fetch_sessions
    owner = session.namespace, session.principal
    kept = cache.get(request.session_id, owner)
    if request.session_epoch in {NEW_SESSION, NO_SESSION}:
        if kept is not None:
            cache.remove(kept)
        if request.session_epoch == NO_SESSION:
            return PendingFetch(request, session, version, reply)
        by_id = version >= TOPIC_IDS_FROM
        kept = FetchSession(owner, session.node.authorizer.revision, by_id=by_id)
        return SessionFetch(request, session, version, reply, kept)
    code = _refusal(kept, request, version)
    if code or kept is None:
        reply(encode_fetch_response(version, [], error_code=code))
        return None
    if kept.pending is not None:  # sent on another connection; its response would be too late
        kept.pending.refuse(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=kept.id)
    kept.epoch = next_epoch(kept.epoch)
    return SessionFetch(request, session, version, reply, kept)


def _refusal(kept: FetchSession | None, request: FetchRequest, version: int) -> ErrorCode:
    if kept is None:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if request.session_epoch != kept.epoch:
        return ErrorCode.INVALID_FETCH_SESSION_EPOCH
    if kept.by_id != (version >= TOPIC_IDS_FROM):
        return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    return ErrorCode.NONE
