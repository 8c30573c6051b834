"""Errors, by who causes them. Adapters map them to their protocol's codes.

Raise where the fault is found; an adapter's ``errors.py`` holds one table GatewayError -> code, in
which the nearest base class wins. An error that is caught and kept, returned or passed on goes
through ``as_value`` (tests/architecture/test_kept_errors.py).
"""

from typing import Final, TypeVar

_Error = TypeVar("_Error", bound=BaseException)
_CAUSES_MAX: Final = 8


def as_value(error: _Error) -> _Error:
    """Return a caught error to be kept or passed on, without its traceback, nor its causes'.

    A traceback holds the frames that the error went through and those that called them: with them
    a request's batches, and a cycle as soon as one of them holds the error. 40 refused batches of
    50 MB kept 2 GB.
    """
    link: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if link is None:
            break
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


class GatewayError(Exception):
    """Anything the gateway says no to. ``retriable``: the same request may succeed later."""

    retriable = False


class PeerError(GatewayError):
    """The peer broke its protocol: answer its code where there is one, then close."""


class RequestError(GatewayError):
    """This request cannot be served; the connection goes on."""


class StorageUnavailable(GatewayError):
    """The storage cannot say that the data is kept. Nothing was acknowledged.

    Its text is for operators: it names files, servers and what a database said.
    """

    retriable = True
    public_text = "the storage is not available; the node's log says why"


class StorageFull(StorageUnavailable):
    """No space could be reserved; raised before an offset exists, so nothing is half done."""

    public_text = "the storage is full"


class Overloaded(GatewayError):
    """A bound with a name in the config is reached."""

    retriable = True


class ShuttingDown(GatewayError):
    """The node drains; a client finds its way to the next one, or back after the restart."""

    retriable = True


# What a request can be refused for.


class TopicNotFound(RequestError):
    """No such topic or partition (it may just be on its way: metadata is refreshed and retried)."""

    retriable = True


class UnknownTopicId(TopicNotFound):
    """No topic has that id; the name may be there with another (it was deleted and made anew)."""


class TopicExists(RequestError):
    """A topic of that name is there already."""


class InvalidTopicName(RequestError):
    """Not 1 to 249 of ``a-zA-Z0-9._-``, or ``.`` or ``..``."""


class InvalidPartitions(RequestError):
    """A partition count below 1, above the bound, or not above the present one."""


class InvalidReplication(RequestError):
    """More replicas were asked for than there are nodes."""


class InvalidConfig(RequestError):
    """A topic config that is unknown or whose value is out of range."""


class InvalidRequest(RequestError):
    """The request contradicts itself, or asks for what is out of range."""


class PolicyViolation(RequestError):
    """Legal, but refused by what this node is set to allow."""


class OffsetOutOfRange(RequestError):
    """Below the log start offset or above the log end offset."""


class CorruptBatch(RequestError):
    """A record batch whose CRC, length or header contradicts its bytes."""


class InvalidRecord(RequestError):
    """A record batch that is intact but says what it may not say."""


class InvalidTimestamp(RequestError):
    """A timestamp further from now than the topic allows."""


class UnsupportedFormat(RequestError):
    """A message format older than v2."""


class UnsupportedCompression(RequestError):
    """A compression that this version of the request does not know."""


class MessageTooLarge(RequestError):
    """Larger than the topic's ``max.message.bytes``."""


class RunTooLarge(RequestError):
    """One atomic append larger than a segment."""


class NotLeader(RequestError):
    """Another node owns the partition."""

    retriable = True


class FencedLeaderEpoch(RequestError):
    """The peer's leader epoch is older than ours: it must refresh its metadata."""

    retriable = True


class UnknownLeaderEpoch(RequestError):
    """The peer's leader epoch is newer than ours."""

    retriable = True


class OutOfOrderSequence(RequestError):
    """An idempotent producer left a gap."""


class DuplicateSequence(RequestError):
    """An idempotent producer sent again what is older than the batches we remember."""


class ProducerFenced(RequestError):
    """A newer incarnation of this producer (a higher epoch) has written."""


class UnknownProducer(RequestError):
    """State of this producer has gone, and its sequence does not start anew."""


class Unauthenticated(RequestError):
    """The credentials are wrong, or none were shown where they are needed."""


class Unauthorized(RequestError):
    """The principal may not do this to this resource."""

    def __init__(self, message: str = "", *, resource: str = "topic") -> None:
        super().__init__(message)
        self.resource = resource


# Consumer groups.


class GroupError(RequestError):
    """Base of what a group coordinator says no to."""


class CoordinatorLoading(GroupError):
    """The groups' stream is still being read after a start."""

    retriable = True


class GroupNotFound(GroupError):
    """No group of that id."""


class GroupNotEmpty(GroupError):
    """The group has members, so it (or its offsets) cannot be removed."""


class GroupSubscribed(GroupError):
    """Members are subscribed to the topic whose offsets were to be removed."""


class InvalidGroupId(GroupError):
    """An empty group id where one is needed."""


class UnknownMember(GroupError):
    """The member id is not in the group: join anew."""


class MemberIdRequired(GroupError):
    """Join again with the member id that is given (KIP-394)."""

    def __init__(self, member_id: str) -> None:
        super().__init__(member_id)
        self.member_id = member_id


class FencedInstance(GroupError):
    """Another member has taken this ``group.instance.id`` (KIP-345)."""


class IllegalGeneration(GroupError):
    """The generation is not the group's present one."""


class RebalanceInProgress(GroupError):
    """Join anew, the group is rebalancing."""


class InconsistentProtocol(GroupError):
    """The member's protocol type or protocols have nothing in common with the group's."""


class InvalidSessionTimeout(GroupError):
    """Outside of the configured range."""


class GroupFull(GroupError):
    """The group has ``group_size_max`` members."""


class MetadataTooLarge(GroupError):
    """The metadata string committed with an offset is above its bound."""


def public_text(error: GatewayError) -> str:
    """Return what a client may be told: of the storage, no files, servers or statements."""
    return error.public_text if isinstance(error, StorageUnavailable) else str(error)
