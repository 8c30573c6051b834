"""Members of a group, its leader, and the protocols that all members support."""

from collections import Counter
from collections.abc import Iterator

from gateway.errors import FencedInstance, UnknownMember
from gateway.groups.model import JoinedMember, Member, Protocols


class GroupMembers:
    """Members by id, static members by instance, in the order in which they joined."""

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self._id_of_instance: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()  # how many members know a protocol
        self.leader_id: str | None = None
        self.protocol_type: str | None = None

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.by_id

    @property
    def joined_count(self) -> int:
        """Number of members that wait for the answer to their join."""
        return sum(member.on_join is not None for member in self)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def check(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that a request comes from.

        Errors: ``UnknownMember``; ``FencedInstance`` when another one has its instance id.
        """
        if instance_id is not None:
            holder = self._id_of_instance.get(instance_id)
            if holder is None:
                raise UnknownMember(f"no member has instance id {instance_id!r}")
            if holder != member_id:
                raise FencedInstance(f"instance id {instance_id!r} has a newer member")
        member = self.by_id.get(member_id)
        if member is None:
            raise UnknownMember(f"no member {member_id!r}")
        return member

    def of_instance(self, instance_id: str | None) -> Member | None:
        """Return the member that has a ``group.instance.id``, or None."""
        if instance_id is None:
            return None
        member_id = self._id_of_instance.get(instance_id)
        return None if member_id is None else self.by_id[member_id]

    def add(self, member: Member) -> None:
        """Add a member; the first one is the leader and sets the group's protocol type."""
        if not self.by_id:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.by_id[member.member_id] = member
        self._supporters.update(name for name, _ in member.protocols)
        if member.instance_id is not None:
            self._id_of_instance[member.instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member; if it was the leader, the next one becomes it."""
        del self.by_id[member.member_id]
        self._supporters.subtract(name for name, _ in member.protocols)
        self._supporters = +self._supporters  # without those that nobody knows any more
        if member.instance_id is not None:
            del self._id_of_instance[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.by_id), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a returning static member its new id; it keeps lead and assignment."""
        assert member.instance_id is not None
        # The order is kept: it decides who leads next and how votes tie.
        self.by_id = {
            member_id if key == member.member_id else key: value
            for key, value in self.by_id.items()
        }
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        self._id_of_instance[member.instance_id] = member_id
        member.member_id = member_id

    def elect_among_joined(self) -> bool:
        """Keep a leader that has joined, else choose a joined member; False if there is none."""
        leader = self.by_id.get(self.leader_id or "")
        if leader is not None and leader.on_join is not None:
            return True
        for member in self:
            if member.on_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a joining member has a protocol that all present members know."""
        if not protocol_type or not protocols:
            return False
        if not self.by_id:
            return True
        if protocol_type != self.protocol_type:
            return False
        return not self._common_protocols().isdisjoint(name for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the protocol with most votes; a member votes for its first common one.

        With equal votes that of the longest-standing member wins.
        """
        common = self._common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self
        )
        return max(votes, key=votes.__getitem__)  # The first of equals, in order of members.

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        """Replace a member's protocols; ``supports`` has accepted them."""
        self._supporters.subtract(name for name, _ in member.protocols)
        member.protocols = protocols
        self._supporters.update(name for name, _ in protocols)
        self._supporters = +self._supporters

    def _common_protocols(self) -> set[str]:
        count = len(self.by_id)
        return {name for name, supporters in self._supporters.items() if supporters == count}

    def listed(self, protocol_name: str | None) -> list[JoinedMember]:
        """Return all members with their metadata, for the leader."""
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
            for member in self
        ]
