"""Errors of the gateway. Adapters map them to their protocol's codes.

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
    """Base of all refusals. ``retriable``: the same request may succeed later."""

    retriable = False


class InvalidSettings(GatewayError):
    """Settings cannot be used. One line per bad key, its path first."""


class PeerError(GatewayError):
    """Protocol violation of a peer: answer its code where there is one, then close."""


class RequestError(GatewayError):
    """Request that cannot be served; the connection stays open."""


class StorageUnavailable(GatewayError):
    """Storage failure: the data may not be durable. Nothing was acknowledged.

    Its text is for operators: it names files, servers and what a database said.
    """

    retriable = True
    public_text = "the storage is not available; the node's log says why"


class PublishRefused(StorageUnavailable):
    """Messages that a full queue has refused; other targets of a publish may have them."""


class StorageFull(StorageUnavailable):
    """No space could be reserved: raised before an offset is assigned; nothing is half done."""

    public_text = "the storage is full"


class OutcomeUnknown(StorageUnavailable):
    """Request whose answer was lost: it may be done, or may still be done later.

    Nobody repeats it as a new one; a client may, by what its protocol has against duplicates.
    """

    public_text = "the answer was lost; the request may have been carried out"


class StoredDataDamaged(StorageUnavailable):
    """Stored bytes are not those that were written; another read will not bring them back.

    ``offset`` and ``next_offset`` bound what is damaged.
    """

    def __init__(self, message: str = "", offset: int = -1, next_offset: int = -1) -> None:
        super().__init__(message)
        self.offset = offset
        self.next_offset = next_offset


class Overloaded(GatewayError):
    """Overload: a bound with a name in the config is reached."""

    retriable = True


class ShuttingDown(GatewayError):
    """Node in shutdown: the client connects elsewhere, or again after the restart."""

    retriable = True


# What a request can be refused for.


class TopicNotFound(RequestError):
    """Unknown topic or partition; retriable, because it may be about to be created."""

    retriable = True


class UnknownTopicId(TopicNotFound):
    """Unknown topic id; the topic's name may exist with another id (deleted and recreated)."""


class TopicExists(RequestError):
    """Topic of that name exists already."""


class InvalidTopicName(RequestError):
    """Topic name that is not 1 to 249 of ``a-zA-Z0-9._-``, or is ``.`` or ``..``."""


class InvalidPartitions(RequestError):
    """Partition count below 1, above the bound, or not above the present one."""


class InvalidReplication(RequestError):
    """Replication factor above the number of nodes."""


class InvalidConfig(RequestError):
    """Topic config that is unknown or whose value is out of range."""


class InvalidRequest(RequestError):
    """Request that contradicts itself or has a value out of range."""


class InvalidRecordState(RequestError):
    """Record is not delivered to the member that acknowledges it, or not any more."""


class PolicyViolation(RequestError):
    """Legal request that this node's settings refuse."""


class QueueFull(PolicyViolation):
    """Queue whose publishers are refused while it has as much as it may.

    ``limit`` has refused a message of ``size_bytes``: see ``gateway.queues.publish_limit``.
    """

    def __init__(self, text: str = "", *, limit: object = None, size_bytes: int = 0) -> None:
        super().__init__(text)
        self.limit = limit
        self.size_bytes = size_bytes


class OffsetOutOfRange(RequestError):
    """Offset below the log start offset or above the log end offset."""


class CorruptBatch(RequestError):
    """Record batch whose CRC, length or header contradicts its bytes."""


class InvalidRecord(RequestError):
    """Record batch that is intact but has a field that clients may not set so."""


class InvalidTimestamp(RequestError):
    """Timestamp further from now than the topic allows."""


class UnsupportedFormat(RequestError):
    """Message format older than v2."""


class UnsupportedCompression(RequestError):
    """Compression codec that this version of the request does not know."""


class MessageTooLarge(RequestError):
    """Message larger than the topic's ``max.message.bytes``."""


class RunTooLarge(RequestError):
    """Atomic append that is larger than a segment."""


class NotOwner(RequestError):
    """Base of the refusals of a node that does not own a shard.

    ``owner_id`` and ``epoch`` are those of the shard's owner, as this node knows them; the id is
    -1 while there is none. Nothing was changed: the client asks the owner.
    """

    retriable = True

    def __init__(self, message: str = "", *, owner_id: int = -1, epoch: int = -1) -> None:
        super().__init__(message)
        self.owner_id = owner_id
        self.epoch = epoch


class NotLeader(NotOwner):
    """Partition that another node owns."""


class FencedLeaderEpoch(RequestError):
    """Leader epoch of the peer is older than ours: it must refresh its metadata."""

    retriable = True


class UnknownLeaderEpoch(RequestError):
    """Leader epoch of the peer is newer than ours."""

    retriable = True


class OutOfOrderSequence(RequestError):
    """Gap in the sequence of an idempotent producer."""


class DuplicateSequence(RequestError):
    """Repeated batch of an idempotent producer, older than the remembered ones."""


class ProducerFenced(RequestError):
    """Producer whose newer incarnation (a higher epoch) has written."""


class CoordinatorFenced(RequestError):
    """Marker of a transaction coordinator that is not the last one any more."""


class InvalidTransactionState(RequestError):
    """Request that does not fit the state of the producer's transaction."""


class UnknownProducer(RequestError):
    """Producer whose state has expired, and whose sequence does not start at 0."""


class Unauthenticated(RequestError):
    """Wrong credentials, or none where they are required."""


class Unauthorized(RequestError):
    """Principal without permission for this operation on this resource."""

    def __init__(self, message: str = "", *, resource: str = "topic") -> None:
        super().__init__(message)
        self.resource = resource


# Transactions.


class TransactionError(RequestError):
    """Base of the refusals of a transaction coordinator."""


class ConcurrentTransactions(TransactionError):
    """End of a transaction that is still under way; the client repeats its request."""

    retriable = True


class TransactionAbortable(TransactionError):
    """Error after which the producer has to abort its transaction, and may go on."""


class UnknownProducerMapping(TransactionError):
    """Transactional id that is unknown, or has another producer id."""


class InvalidTransactionTimeout(TransactionError):
    """Transaction timeout that is not positive, or above the node's bound."""


class TransactionNotFound(TransactionError):
    """Unknown transactional id."""


# Consumer groups.


class GroupError(RequestError):
    """Base of the refusals of a group coordinator."""


class CoordinatorLoading(GroupError):
    """Coordinator that still reads the stream of groups after a start."""

    retriable = True


class NotCoordinator(NotOwner, GroupError):
    """Group that another node owns."""


class GroupNotFound(GroupError):
    """Unknown group id."""


class GroupNotEmpty(GroupError):
    """Group with members, which (or whose offsets) cannot be removed."""


class GroupSubscribed(GroupError):
    """Group whose members are subscribed to the topic of offsets to be removed."""


class InvalidGroupId(GroupError):
    """Empty group id where one is needed."""


class UnknownMember(GroupError):
    """Member id that is not in the group: the client joins again."""


class MemberIdRequired(GroupError):
    """Request to join again with the given member id (KIP-394)."""

    def __init__(self, member_id: str) -> None:
        super().__init__(member_id)
        self.member_id = member_id


class FencedInstance(GroupError):
    """Member whose ``group.instance.id`` another one has taken (KIP-345)."""


class IllegalGeneration(GroupError):
    """Generation other than the group's present one."""


class RebalanceInProgress(GroupError):
    """Rebalance in progress: the client joins again."""


class InconsistentProtocol(GroupError):
    """Protocol type or protocols of a member that the group does not share."""


class InvalidSessionTimeout(GroupError):
    """Session timeout outside of the configured range."""


class GroupFull(GroupError):
    """Group that has ``group_size_max`` members already."""


class FencedMemberEpoch(GroupError):
    """Epoch of a member that is not the coordinator's: it gives all up and joins again."""


class StaleMemberEpoch(GroupError):
    """Epoch of a commit that is not the member's now; its next heartbeat brings the new one."""


class UnreleasedInstance(GroupError):
    """Static member whose instance id another member still has."""


class UnsupportedAssignor(GroupError):
    """Assignor that the coordinator does not have."""


class InvalidPattern(GroupError):
    """Regular expression that is none of RE2's."""


class MetadataTooLarge(GroupError):
    """Metadata of a committed offset above its bound."""


def public_text(error: GatewayError) -> str:
    """Return an error's text for clients: without files, servers or SQL statements."""
    return error.public_text if isinstance(error, StorageUnavailable) else str(error)
