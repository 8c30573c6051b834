"""Any order of requests of several producers with one transactional id, against a plain model.

The model knows which producer ids and epochs were given to whom, and what each transaction holds;
it does not know how the block counts.
"""

from dataclasses import dataclass, field
from itertools import count
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from features.transactions import (
    EPOCH_MAX,
    Ending,
    InitRequest,
    PartitionRef,
    State,
    Transaction,
    add,
    check_written,
    end,
    fence,
    initialise,
    needs_producer_id,
)
from gateway.errors import GatewayError

PLACES = [PartitionRef(UUID(int=9), number) for number in range(3)]


@dataclass
class Producer:
    """Producer as its client knows it: id, epoch, and its last request of each kind."""

    producer_id: int
    epoch: int
    version: int
    is_fenced: bool = False
    written: set[PartitionRef] = field(default_factory=set)


class World:
    """One transactional id, its producers and the log of all partitions."""

    def __init__(self, first_epoch: int) -> None:
        self.new_ids = count(1_000)
        self.value: Transaction | None = None
        self.first_epoch = first_epoch
        self.producers: list[Producer] = []
        self.given: set[tuple[int, int]] = set()
        self.written: list[tuple[int, int, PartitionRef]] = []  # without an outcome
        self.outcomes = 0
        self.now = 1_000

    def step(self, operation: str, which: int, place: PartitionRef) -> None:
        self.now += 1
        if operation.startswith("init"):
            self.start(2 if operation == "init2" else 1)
        elif operation == "timeout":
            if self.value is not None and self.value.state is State.ONGOING:
                self.ended(fence(self.value, self.now))
        elif self.producers:
            producer = self.producers[which % len(self.producers)]
            if operation == "go on":
                self.go_on(producer)
            elif operation == "write":
                self.write(producer, place)
            else:
                self.end(producer, is_commit=operation == "commit")

    def new_id(self) -> int:
        return next(self.new_ids) if needs_producer_id(self.value) else -1

    def start(self, version: int) -> None:
        new_id = self.new_id()
        if self.value is not None and self.value.state is State.ONGOING:
            self.ended(fence(self.value, self.now))
        self.value = initialise(self.value, InitRequest(500), new_id, self.now)
        if len(self.given) == 0:  # near the end of the epochs, in some runs
            self.value = Transaction(self.value.producer_id, self.first_epoch, 500)
        for producer in self.producers:
            producer.is_fenced = True
        self.give(self.value)
        self.producers.append(Producer(self.value.producer_id, self.value.epoch, version))

    def give(self, value: Transaction) -> None:
        pair = value.producer_id, value.epoch
        assert pair not in self.given, "an epoch was given twice"
        assert 0 <= value.epoch < EPOCH_MAX
        self.given.add(pair)

    def go_on(self, producer: Producer) -> None:
        if self.value is not None and self.value.state is State.ONGOING:
            return  # clients abort first
        request = InitRequest(500, producer.producer_id, producer.epoch)
        try:
            value = initialise(self.value, request, self.new_id(), self.now)
        except GatewayError:
            return
        assert not producer.is_fenced, "a zombie was given an epoch"
        again = initialise(value, request, next(self.new_ids), self.now)
        assert (again.producer_id, again.epoch) == (value.producer_id, value.epoch)
        self.value = value
        self.give(value)
        producer.producer_id, producer.epoch = value.producer_id, value.epoch

    def write(self, producer: Producer, place: PartitionRef) -> None:
        pair = producer.producer_id, producer.epoch
        try:
            value = add(
                self.value,
                *pair,
                now_unix_ms=self.now,
                partitions=[place],
                version=producer.version,
                members_max=100,
            )
            check_written(value, *pair, place)
        except GatewayError:
            return
        assert not producer.is_fenced, "a zombie has written"
        self.value = value
        self.written.append((*pair, place))

    def decide(self, producer: Producer, new_id: int, *, is_commit: bool) -> Ending:
        return end(
            self.value,
            producer.producer_id,
            producer.epoch,
            is_commit=is_commit,
            version=producer.version,
            new_id=new_id,
            now_unix_ms=self.now,
        )

    def end(self, producer: Producer, *, is_commit: bool) -> None:
        before = self.value
        try:
            ending = self.decide(producer, self.new_id(), is_commit=is_commit)
        except GatewayError:
            return
        if not ending.is_new:
            assert ending.value is before
            assert not producer.is_fenced, "a zombie was given the epoch of another producer"
        else:
            assert not producer.is_fenced, "a zombie has ended a transaction"
            self.ended(ending)
            again = self.decide(producer, -1, is_commit=is_commit)
            assert (again.value, again.is_new) == (ending.value, False)
        self.given.add((ending.value.producer_id, ending.value.epoch))
        if producer.version >= 2 and not producer.is_fenced:
            producer.producer_id, producer.epoch = ending.value.producer_id, ending.value.epoch

    def ended(self, ending: Ending) -> None:
        """Give all that is written its outcome: the markers reach each partition of it."""
        for producer_id, epoch, place in self.written:
            assert producer_id == ending.producer_id
            assert place in ending.partitions
            assert epoch <= ending.marker_epoch
        self.outcomes += len(self.written)
        self.written.clear()
        self.value = ending.value
        assert self.value.partitions == ()


OPERATIONS = st.tuples(
    st.sampled_from(
        ["init1", "init2", "go on", "write", "write", "write", "commit", "abort", "timeout"]
    ),
    st.integers(0, 5),
    st.sampled_from(PLACES),
)


@settings(max_examples=300)
@given(first_epoch=st.sampled_from([0, EPOCH_MAX - 4]), steps=st.lists(OPERATIONS, max_size=40))
def test_epochs_are_given_once_and_zombies_change_nothing(
    first_epoch: int, steps: list[tuple[str, int, PartitionRef]]
) -> None:
    world = World(first_epoch)
    for step in steps:
        world.step(*step)
        state = world.value.state if world.value is not None else State.EMPTY
        assert bool(world.written) <= (state is State.ONGOING)
