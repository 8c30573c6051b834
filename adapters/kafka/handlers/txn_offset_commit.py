"""TxnOffsetCommit: API key 28, versions 0 to 5.

v2  committed_leader_epoch (KIP-320)
v3  flexible encoding; member_id, group_instance_id and generation_id (KIP-447)
v4  TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE, on which clients stop (KIP-890)
v5  the group is added to the transaction by this request (KIP-890)

The offsets are those of the group when the transaction is committed. Until then OffsetFetch returns
the ones before, or UNSTABLE_OFFSET_COMMIT to those who ask for stable ones. The response is sent
when they are durable.
"""

from typing import Any, Final, TypeAlias

from kafka.protocol.producer import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from adapters.kafka.access.authorization import topic_for
from adapters.kafka.errors import ErrorCode, code_of
from adapters.kafka.groups.coordinator import check_group, group_code_of, group_name
from adapters.kafka.session import Session
from adapters.kafka.transactions.coordinator import (
    VERSION_WITH_EPOCHS,
    check_transactional_id,
    transactional_id,
)
from features.transactions import GroupRef
from gateway.auth.ports import Operation
from gateway.errors import (
    CoordinatorLoading,
    GatewayError,
    InvalidTransactionState,
    MetadataTooLarge,
    NotCoordinator,
    NotOwner,
    TopicNotFound,
)
from gateway.futures import await_done
from gateway.groups.cursors import UNKNOWN_EPOCH, Commit
from gateway.groups.model import GroupName
from gateway.transactions.joins import Join

API_KEY: Final = 28
VERSIONS: Final = range(6)
LOADING_CODE_FROM: Final = 2
LEADER_EPOCH_FROM: Final = 2
MEMBER_FROM: Final = 3
ABORTABLE_FROM: Final = 4
ADDS_GROUP_FROM: Final = 5

_Topic: TypeAlias = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Codes: TypeAlias = list[tuple[str, list[tuple[int, ErrorCode]]]]


async def handle(
    request: TxnOffsetCommitRequest, session: Session, version: int
) -> TxnOffsetCommitResponse:
    """Store offsets that a transaction commits; an error of the group is that of each offset."""
    commits: list[Commit] = []
    try:
        check_transactional_id(session, Operation.WRITE, request.transactional_id)
        check_group(session, Operation.READ, request.group_id)
        codes = _take(request, session, version, commits)
        await _commit(request, session, version, commits)
    except GatewayError as error:
        code = _code(error, version)
        codes = [
            (topic.name, [(one.partition_index, code) for one in topic.partitions])
            for topic in request.topics
        ]
    return _respond(version, codes)


async def _commit(
    request: TxnOffsetCommitRequest, session: Session, version: int, commits: list[Commit]
) -> None:
    """Check the member and the producer, whose coordinator may be another node; store offsets."""
    node = session.node
    group = group_name(session, request.group_id)
    _check_member(request, session, version, group)
    await node.transactions.joins.join(
        Join(
            transactional_id(session, request.transactional_id),
            request.producer_id,
            request.producer_epoch,
            VERSION_WITH_EPOCHS,
            groups=(GroupRef(*group),),
            adds=version >= ADDS_GROUP_FROM,
        )
    )
    _check_member(request, session, version, group)  # the join may have waited
    if commits:
        await await_done(
            lambda on_done: node.cursors.commit_pending(
                group, request.producer_id, commits, on_done
            )
        )


def _check_member(
    request: TxnOffsetCommitRequest, session: Session, version: int, group: GroupName
) -> None:
    check = session.node.groups.check_transactional_commit
    if version >= MEMBER_FROM:
        check(group, request.member_id, request.group_instance_id, request.generation_id)
    else:
        check(group, "", None, -1)


def _take(
    request: TxnOffsetCommitRequest, session: Session, version: int, commits: list[Commit]
) -> _Codes:
    """Add the valid offsets to ``commits``; return a code for each."""
    codes = []
    for topic in request.topics:
        some = []
        for one in topic.partitions:
            code = ErrorCode.NONE
            try:
                commits.append(_to_commit(session, topic.name, one, version))
            except GatewayError as error:
                code = code_of(error)
            some.append((one.partition_index, code))
        codes.append((topic.name, some))
    return codes


def _to_commit(session: Session, topic_name: str, one: Any, version: int) -> Commit:  # noqa: ANN401 - generated
    topic = topic_for(session, topic_name, Operation.READ)
    if not 0 <= one.partition_index < len(topic.partition_ids):
        raise TopicNotFound(f"{topic_name} has no partition {one.partition_index}")
    metadata = one.committed_metadata or ""
    bytes_max = session.node.cursors.metadata_bytes_max
    if len(metadata.encode()) > bytes_max:
        raise MetadataTooLarge(f"at most {bytes_max} bytes")
    epoch = one.committed_leader_epoch if version >= LEADER_EPOCH_FROM else UNKNOWN_EPOCH
    return Commit(topic.uuid, one.partition_index, one.committed_offset, epoch, metadata)


def _code(error: GatewayError, version: int) -> ErrorCode:
    if isinstance(error, CoordinatorLoading) and version < LOADING_CODE_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if isinstance(error, InvalidTransactionState) and version >= ABORTABLE_FROM:
        return ErrorCode.TRANSACTION_ABORTABLE
    if isinstance(error, NotOwner) and not isinstance(error, NotCoordinator):
        return (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
        )  # of the transaction: the group's is this node
    return group_code_of(error)


def _respond(version: int, codes: _Codes) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        version=version,
        topics=[
            _Topic(
                name=name,
                partitions=[
                    _Topic.TxnOffsetCommitResponsePartition(
                        partition_index=number, error_code=code
                    )
                    for number, code in some
                ],
            )
            for name, some in codes
        ],
    )
