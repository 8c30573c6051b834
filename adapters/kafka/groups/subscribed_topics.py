"""Checks of the topics that a member of a group subscribes to."""

from collections.abc import Collection

from adapters.kafka.session import Session
from gateway.auth.ports import Operation, ResourceType
from gateway.errors import GroupFull, InvalidRequest, Unauthorized
from gateway.model import NAME_CHARS_MAX


def check_topics(session: Session, names: Collection[str] | None) -> None:
    """Check the names that a member subscribes to; None when they have not changed.

    Errors: ``GroupFull`` for too many, ``InvalidRequest`` for one that no topic can have,
    ``Unauthorized`` for one that the session may not describe.
    """
    names_max = session.node.settings.groups.consumer_names_max
    if len(names or ()) > names_max:
        raise GroupFull(f"a member subscribes to at most {names_max} names")
    for name in names or ():
        if len(name) > NAME_CHARS_MAX:
            raise InvalidRequest(f"a topic name has at most {NAME_CHARS_MAX} characters")
        if not session.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise Unauthorized(f"Describe on topic {name[:80]} is not allowed")
