"""Join and rejoin of members (Kafka's JoinGroup, classic groups).

Plain functions over ``Group``: they decide which way a join takes, the group does the steps.
"""

from functools import partial

from gateway.errors import GatewayError, GroupFull, InconsistentProtocol, MemberIdRequired
from gateway.groups.group import Group
from gateway.groups.model import (
    GroupState,
    JoinRequest,
    JoinResult,
    Member,
    OnJoined,
)
from gateway.groups.subscription import subscribed_topics


def join(
    group: Group, request: JoinRequest, new_member_id: str, on_joined: OnJoined, now_ms: int
) -> None:
    """Add a member, or let it rejoin. ``new_member_id`` is used when it has no id yet.

    ``on_joined`` runs once, now or later. Errors, instead of it: ``GroupFull``,
    ``InconsistentProtocol``, ``MemberIdRequired``, ``UnknownMember``, ``FencedInstance``.
    """
    if not _has_room(group, request.member_id):
        raise GroupFull(f"the group has {group.size_max} members")
    if not group.members.supports(request.protocol_type, request.protocols):
        raise InconsistentProtocol("no protocol in common with the group's members")
    if request.member_id:
        _join_known(group, request, on_joined, now_ms)
    else:
        _join_unknown(group, request, new_member_id, on_joined, now_ms)
    group.complete_join_if_all_joined(now_ms)


def _has_room(group: Group, member_id: str) -> bool:
    """Whether one more member may join; during a rebalance, joined members count."""
    members = group.members
    if group.state is GroupState.PREPARING_REBALANCE:
        member = members.by_id.get(member_id)
        is_waiting = member is not None and member.on_join is not None
        return is_waiting or members.joined_count < group.size_max
    return member_id in members or len(members) < group.size_max


def _join_unknown(
    group: Group, request: JoinRequest, member_id: str, on_joined: OnJoined, now_ms: int
) -> None:
    present = group.members.of_instance(request.instance_id)
    if present is not None:
        _replace(group, present, member_id, request, on_joined, now_ms)
    elif request.instance_id is None and request.needs_known_member_id:
        if len(group.pending) >= group.size_max:
            raise GroupFull(f"{group.size_max} members have not come back to join")
        group.pending[member_id] = now_ms + request.session_timeout_ms
        raise MemberIdRequired(member_id)
    else:
        _add(group, request, member_id, on_joined, now_ms)


def _join_known(group: Group, request: JoinRequest, on_joined: OnJoined, now_ms: int) -> None:
    member_id = request.member_id
    if request.instance_id is None and group.pending.pop(member_id, None) is not None:
        _add(group, request, member_id, on_joined, now_ms)
        return
    member = group.members.check(member_id, request.instance_id)
    if member.protocols == request.protocols and _may_stay(group, member):
        on_joined(group.join_result(member))
    else:
        group.rejoin(member, request, on_joined)
        group.prepare_rebalance(now_ms)


def _may_stay(group: Group, member: Member) -> bool:
    """Whether a repeated join may be answered without a rebalance.

    It may have missed the answer to its last one. But a leader joins in order to rebalance.
    """
    if group.state is GroupState.COMPLETING_REBALANCE:
        return True
    return group.state is GroupState.STABLE and member.member_id != group.members.leader_id


def _add(
    group: Group, request: JoinRequest, member_id: str, on_joined: OnJoined, now_ms: int
) -> None:
    member = Member(member_id, request)
    member.on_join = on_joined
    group.add(member, now_ms)


def _replace(  # noqa: PLR0917  # A join's arguments, and who is replaced.
    group: Group,
    member: Member,
    member_id: str,
    request: JoinRequest,
    on_joined: OnJoined,
    now_ms: int,
) -> None:
    """Replace a returning static member; it keeps an assignment that still fits (KIP-345)."""
    old_leader_id = group.members.leader_id or ""
    old_topics = subscribed_topics(member.metadata(group.protocol_name))
    group.fence(member, member_id)
    group.rejoin(member, request, on_joined)
    member.deadline_ms = now_ms + member.session_timeout_ms
    if group.state is not GroupState.STABLE or not _still_fits(group, member, old_topics):
        group.prepare_rebalance(now_ms)
        return
    result = group.join_result(member)
    if request.can_skip_assignment:
        result = result._replace(skip_assignment=member_id == group.members.leader_id)
    else:
        # It must not take itself for the leader, or it would compute assignments (KIP-814).
        result = result._replace(leader_id=old_leader_id, members=())
    # The answer waits: after a restart the new id must be the one that is known.
    group.request_save(partial(_answer_replaced, group, member, result))


def _still_fits(group: Group, member: Member, old_topics: frozenset[str] | None) -> bool:
    """Whether the assignments are still valid with a replaced member's protocols.

    Only topics are compared: what else a member says of itself (the partitions it owns) is
    always different after a restart.
    """
    topics = subscribed_topics(member.metadata(group.protocol_name))
    return group.members.select_protocol() == group.protocol_name and topics == old_topics


def _answer_replaced(
    group: Group, member: Member, result: JoinResult, error: GatewayError | None, _now_ms: int
) -> None:
    if group.state is not GroupState.STABLE or group.generation != result.generation:
        return  # A rebalance came in between, which answers all that have joined.
    if member.member_id != result.member_id:
        return  # It came back once more, and that join has its own answer on the way.
    member.answer_join(result if error is None else JoinResult(member.member_id, error=error))
