"""Group, member and session of a ShareFetch or ShareAcknowledge request."""

from typing import Final

from adapters.kafka.errors import ErrorCode, Refused
from adapters.kafka.groups.coordinator import check_group, group_name
from adapters.kafka.node.share_sessions import SessionKey
from adapters.kafka.session import Session
from gateway.auth.ports import Operation
from gateway.groups.directory import check_share_name

MEMBER_ID_CHARS_MAX: Final = 36


def session_key(session: Session, group_id: str, member_id: str) -> SessionKey:
    """Return the name of a request's session.

    Whether the member is in the group is not checked, as in Kafka: a partition's leader serves
    any. Errors: ``Unauthorized``; ``InvalidGroupId``, as ``check_share_name``; ``Refused``,
    INVALID_REQUEST.
    """
    check_group(session, Operation.READ, group_id)
    if not group_id.strip() or not 0 < len(member_id) <= MEMBER_ID_CHARS_MAX:
        msg = (
            f"A group id, and a member id of 1 to {MEMBER_ID_CHARS_MAX} characters are needed."
        )
        raise Refused(ErrorCode.INVALID_REQUEST, msg)
    name = group_name(session, group_id)
    check_share_name(name)
    return SessionKey(name, member_id)


def check_renewal(session: Session, key: SessionKey, *, renews: bool) -> None:
    """Raise ``Refused``, INVALID_REQUEST, when the group's members may not renew locks."""
    if renews and not session.node.shares.settings(key.group).may_renew:
        raise Refused(ErrorCode.INVALID_REQUEST, "The group's members may not renew locks.")
