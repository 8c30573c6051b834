"""Deliveries in flight, against a dictionary from tag to message."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.queues.unacked import Unacked, UnackedRanges

Message = tuple[str, int, int]  # source, partition, offset


def messages(ranges: list[Unacked[str]]) -> dict[int, Message]:
    return {
        one.first_tag + index: (one.source, one.number, one.first_offset + index)
        for one in ranges
        for index in range(one.size)
    }


class UnackedMachine(RuleBasedStateMachine):
    """Adds ranges of consecutive tags, takes single tags and all up to a tag."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: UnackedRanges[str] = UnackedRanges()
        self.model: dict[int, Message] = {}
        self.next_tag = 1
        self.taken: list[Unacked[str]] = []

    @rule(size=st.integers(1, 5), number=st.integers(0, 2), offset=st.integers(0, 100))
    def add(self, size: int, number: int, offset: int) -> None:
        added = Unacked(self.next_tag, size, "c", number, offset, 1)
        self.ranges.add(added)
        self.model |= messages([added])
        self.next_tag += size

    @rule(tag=st.integers(0, 60))
    def take(self, tag: int) -> None:
        found = self.ranges.take(tag)
        expected = self.model.pop(tag, None)
        assert (None if found is None else messages([found])[tag]) == expected

    @rule(tag=st.integers(0, 60))
    def take_up_to(self, tag: int) -> None:
        found = self.ranges.take_up_to(tag)
        if tag not in self.model:
            assert found is None
            return
        assert found is not None
        expected = {one: message for one, message in self.model.items() if one <= tag}
        assert messages(found) == expected
        self.model = {one: message for one, message in self.model.items() if one > tag}
        self.taken = found

    @rule()
    def put_back(self) -> None:
        self.model |= messages(self.taken)
        self.ranges.put_back(self.taken)
        self.taken = []

    @rule()
    def take_all(self) -> None:
        assert messages(self.ranges.take_all()) == self.model
        self.model = {}
        self.taken = []

    @invariant()
    def counts(self) -> None:
        assert self.ranges.count == len(self.model)


TestUnacked = UnackedMachine.TestCase
TestUnacked.settings = settings(stateful_step_count=40)
