"""Roster of clients by group: members that heartbeats keep alive, without generations.

For protocols whose clients share partitions among themselves: each reads the list of its group's
members, and all come to the same result. Nothing is stored: clients come back after a start with
their next heartbeat. Loop only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.clock import Clock
from gateway.deadlines import Deadlines
from gateway.errors import Overloaded
from gateway.groups.model import GroupName

S = TypeVar("S")
_Key = tuple[GroupName, str]


@dataclass(slots=True)
class RosterMember(Generic[S]):
    """Client in a group. ``holder`` is the connection of its last heartbeat."""

    client_id: str
    holder: object
    subscription: S
    ends_ms: int


class ClientRoster(Generic[S]):
    """Members of groups, with what each subscribes to; compared by ``==``.

    ``on_changed`` is called with a group after a member has joined, left, expired or changed its
    subscription. At ``members_max`` memberships of all groups, heartbeats of new members are
    refused.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        expiry_ms: int,
        members_max: int,
        on_changed: Callable[[GroupName], None],
    ) -> None:
        self._clock = clock
        self._expiry_ms = expiry_ms
        self._members_max = members_max
        self._on_changed = on_changed
        self._groups: dict[GroupName, dict[str, RosterMember[S]]] = {}
        self._held: dict[object, set[_Key]] = {}
        self._count = 0
        self._deadlines: Deadlines[_Key] = Deadlines(clock, self._expire)

    def __len__(self) -> int:
        """Return the number of memberships."""
        return self._count

    def close(self) -> None:
        """Stop the timer; nobody expires any more."""
        self._deadlines.close()

    def groups(self) -> list[GroupName]:
        """Return the groups that have a member."""
        return list(self._groups)

    def members(self, group: GroupName) -> list[RosterMember[S]]:
        """Return the members of a group, in the order of their client ids."""
        found = self._groups.get(group, {})
        return [found[client_id] for client_id in sorted(found)]

    def find(self, group: GroupName, client_id: str) -> RosterMember[S] | None:
        """Return a member, None if it is none."""
        return self._groups.get(group, {}).get(client_id)

    def held_by(self, holder: object) -> list[tuple[GroupName, RosterMember[S]]]:
        """Return the memberships whose last heartbeat came from a connection."""
        keys = sorted(self._held.get(holder, ()))
        return [(group, self._groups[group][client_id]) for group, client_id in keys]

    def beat(self, group: GroupName, client_id: str, holder: object, subscription: S) -> None:
        """Add or keep a member. Error: ``Overloaded`` for a new one at the bound."""
        key = group, client_id
        members = self._groups.get(group)
        member = None if members is None else members.get(client_id)
        ends_ms = self._clock.monotonic_ms() + self._expiry_ms
        if member is None:
            if self._count >= self._members_max:
                raise Overloaded(f"there are {self._members_max} members of groups")
            member = RosterMember(client_id, holder, subscription, ends_ms)
            self._groups.setdefault(group, {})[client_id] = member
            self._count += 1
            is_changed = True
        else:
            self._unhold(member.holder, key)
            is_changed = member.subscription != subscription
            member.holder, member.subscription = holder, subscription
            member.ends_ms = ends_ms
        self._held.setdefault(holder, set()).add(key)
        self._deadlines.arm(key, ends_ms)
        if is_changed:
            self._on_changed(group)

    def leave(self, group: GroupName, client_id: str) -> None:
        """Remove a member, if it is there."""
        if self._remove((group, client_id)):
            self._on_changed(group)

    def end_holder(self, holder: object) -> None:
        """Remove the members whose last heartbeat came from a connection: it has ended."""
        keys = sorted(self._held.get(holder, ()))
        for key in keys:
            self._remove(key)
        for group in dict.fromkeys(group for group, _ in keys):
            self._on_changed(group)

    def _remove(self, key: _Key) -> bool:
        group, client_id = key
        members = self._groups.get(group)
        member = None if members is None else members.pop(client_id, None)
        if members is None or member is None:
            return False
        if not members:
            del self._groups[group]
        self._count -= 1
        self._unhold(member.holder, key)
        self._deadlines.forget(key)
        return True

    def _unhold(self, holder: object, key: _Key) -> None:
        held = self._held[holder]
        held.discard(key)
        if not held:
            del self._held[holder]

    def _expire(self, key: _Key) -> None:
        group, client_id = key
        member = self.find(group, client_id)
        if member is None:
            return
        if member.ends_ms > self._clock.monotonic_ms():
            self._deadlines.arm(key, member.ends_ms)
        elif self._remove(key):
            self._on_changed(group)
