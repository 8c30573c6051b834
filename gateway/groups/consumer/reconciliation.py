"""Steps of a member from its present assignment to its target (KIP-848, Reconciliation).

A partition has one user at a time: who must give one up confirms it by the list of what it
owns, and only then may another member have it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gateway.groups.consumer.model import (
    NO_PARTITIONS,
    ConsumerMember,
    MemberState,
    Partitions,
    TopicPartition,
)


class ReconciliationStep(NamedTuple):
    """Epoch, state and partitions of a member after a heartbeat."""

    epoch: int
    state: MemberState
    assigned: Partitions
    pending: Partitions


def next_step(
    member: ConsumerMember,
    owned: Partitions | None,
    target_epoch: int,
    epochs: Mapping[TopicPartition, int],
    readable: Partitions,
) -> ReconciliationStep:
    """Return where the member stands next; the present step if nothing changes.

    ``owned`` is what the member says it uses, None when that is as before. ``epochs`` has the
    partitions that anybody uses. ``readable`` are those of the member's partitions whose topics
    it still reads.
    """
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        pending = member.pending | (member.assigned - readable)
        if _uses(owned, pending):
            return ReconciliationStep(epoch, member.state, readable, pending)
        # The new target may be several epochs ahead: one may hold revocations of its own.
        epoch = min(epoch + 1, target_epoch)
    elif member.state is MemberState.STABLE and (epoch, member.assigned) == (
        target_epoch,
        readable,
    ):
        return ReconciliationStep(epoch, member.state, member.assigned, member.pending)
    keep = readable & member.target
    revoked = member.assigned - keep
    if _uses(owned, revoked):
        return ReconciliationStep(epoch, MemberState.UNREVOKED_PARTITIONS, keep, revoked)
    wanted = member.target - keep
    unused = frozenset(partition for partition in wanted if partition not in epochs)
    state = MemberState.STABLE
    if len(unused) < len(wanted):
        state = MemberState.UNRELEASED_PARTITIONS
    return ReconciliationStep(target_epoch, state, keep | unused, NO_PARTITIONS)


def _uses(owned: Partitions | None, revoked: Partitions) -> bool:
    """Whether a member may still use partitions that it shall give up."""
    return bool(revoked) and (owned is None or bool(owned & revoked))
