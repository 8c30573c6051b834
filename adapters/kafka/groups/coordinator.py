"""Group names, authorization and error codes, shared by the handlers of the group APIs."""

from collections.abc import Mapping
from typing import Final

from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.session import Session
from gateway import errors
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import GatewayError, Unauthorized
from gateway.groups.model import GroupName

# Codes where a coordinator's differ from a partition leader's: clients search for the coordinator
# again on these, and do not handle the others.
_CODES: Final[Mapping[type[GatewayError], ErrorCode]] = {
    errors.StorageUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.Overloaded: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.ShuttingDown: ErrorCode.NOT_COORDINATOR,
}


def group_name(session: Session, group_id: str) -> GroupName:
    """Return the name of a group in the session's namespace."""
    return GroupName(session.namespace, group_id)


def check_group(session: Session, operation: Operation, group_id: str) -> None:
    """Raise ``Unauthorized`` unless the session may do ``operation`` on the group."""
    if not session.allows(operation, ResourceType.GROUP, group_id):
        msg = f"{operation.value} on group {group_id[:80]} is not allowed"
        raise Unauthorized(msg, resource="group")


def group_code_of(error: GatewayError | None) -> ErrorCode:
    """Return a coordinator's error code for an error; NONE for None.

    >>> group_code_of(errors.StorageFull()).name
    'COORDINATOR_NOT_AVAILABLE'
    >>> group_code_of(errors.UnknownMember()).name
    'UNKNOWN_MEMBER_ID'
    """
    if error is None:
        return ErrorCode.NONE
    for base, code in _CODES.items():
        if isinstance(error, base):
            return code
    return code_of(error)
