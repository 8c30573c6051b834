"""Protocols whose members send heartbeats: consumer groups (KIP-848) and share groups (KIP-932)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Assignor
from gateway.groups.consumer.share_assignor import SHARE_ASSIGNOR, assign_simple
from gateway.groups.model import CONSUMER_PROTOCOL, SHARE_PROTOCOL


class MemberProtocol(NamedTuple):
    """Differences between the two kinds of groups.

    ``is_exclusive``: a partition has one member at a time, and changes hands by revocation.
    ``group_key``, ``member_key``: first bytes of their keys in the stream ``__cursors``.
    """

    name: str
    noun: str
    assignors: Mapping[str, Assignor]
    default_assignor: str
    is_exclusive: bool
    group_key: bytes
    member_key: bytes


CONSUMER: Final = MemberProtocol(
    name=CONSUMER_PROTOCOL,
    noun="consumer",
    assignors=ASSIGNORS,
    default_assignor=DEFAULT_ASSIGNOR,
    is_exclusive=True,
    group_key=b"\x03",
    member_key=b"\x04",
)
SHARE: Final = MemberProtocol(
    name=SHARE_PROTOCOL,
    noun="share",
    assignors={SHARE_ASSIGNOR: assign_simple},
    default_assignor=SHARE_ASSIGNOR,
    is_exclusive=False,
    group_key=b"\x06",
    member_key=b"\x07",
)
