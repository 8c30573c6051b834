"""The index equals a model of a few dictionaries after any calls in any order."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.clock import ManualClock
from gateway.sql.engines import engine_url
from storage_adapters.s3.change import BoundsRow, Change, ObjectPart
from storage_adapters.s3.index import Fenced, Index, Ownership, PendingLost
from tests.storage_adapters.s3.index.changes import bounds, new_object, part
from tests.support.examples import examples

TTL_MS = 50
PARTITIONS = st.sets(st.integers(1, 4), min_size=1)


class IndexModel(RuleBasedStateMachine):
    """Two nodes take over from each other; one reader takes leases."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.index = Index(engine_url("sqlite", Path(self.folder.name)), clock=self.clock)
        self.index.open()
        self.owners: list[Ownership] = []
        self.pending: dict[int, tuple[int, int]] = {}  # number: (epoch, reserved at)
        self.live: dict[int, list[ObjectPart]] = {}
        self.died_ms: dict[int, int] = {}
        self.leases: dict[str, tuple[int, frozenset[int]]] = {}  # end, dead before it
        self.never_live: set[int] = set()
        self.bounds: dict[int, BoundsRow] = {}
        self.next_number = 1
        self.next_sequence = 1
        self.take_over(2)

    def teardown(self) -> None:
        self.index.close()
        self.folder.cleanup()

    def reserved(self, numbers: list[int], epoch: int) -> None:
        assert numbers == list(range(self.next_number, self.next_number + len(numbers)))
        self.next_number += len(numbers)
        self.pending |= {number: (epoch, self.clock.unix_ms()) for number in numbers}

    @rule(reserve=st.integers(0, 3))
    def take_over(self, reserve: int) -> None:
        owned = self.index.take_over(1, reserve=reserve)
        assert owned.epoch == len(self.owners) + 1
        assert owned.next_sequence == self.next_sequence
        self.reserved(owned.reserved, owned.epoch)
        self.owners.append(owned)

    @rule(data=st.data(), partitions=PARTITIONS, reserve=st.integers(0, 2))
    def commit(self, data: st.DataObject, partitions: set[int], reserve: int) -> None:
        owner = data.draw(st.sampled_from(self.owners[-2:]))
        known = sorted(self.pending) + sorted(self.died_ms)
        add = (
            data.draw(st.lists(st.sampled_from(known), max_size=2, unique=True))
            if known
            else []
        )
        gone = data.draw(st.sets(st.sampled_from(sorted(self.live)))) if self.live else set()
        shrunk = self.live.keys() - gone if data.draw(st.booleans()) else set()
        change = Change(
            added=tuple(
                new_object(number, *[part(number, at) for at in sorted(partitions)])
                for number in add
            ),
            gone=tuple(gone),
            shrunk=tuple(
                (number, frozenset([one.partition_id for one in self.live[number][1:]]))
                for number in sorted(shrunk)
            ),
            bounds=tuple(bounds(at, self.next_sequence) for at in sorted(partitions)),
            next_sequence=self.next_sequence + 1,
            reserve=reserve,
        )
        is_stale = owner is not self.owners[-1]
        lost = [n for n in add if self.pending.get(n, (0, 0))[0] != owner.epoch]
        try:
            numbers = self.index.commit(owner.epoch, change)
        except Fenced:
            assert is_stale
            return
        except PendingLost as error:
            missed = error.number
            assert (is_stale, missed) == (False, lost[0])
            return
        assert not is_stale
        assert not lost
        self.committed(change, numbers, owner.epoch)

    def committed(self, change: Change, numbers: list[int], epoch: int) -> None:
        for new in change.added:
            del self.pending[new.stored.number]
            self.live[new.stored.number] = new.parts
        for number in change.gone:
            del self.live[number]
            self.died_ms[number] = self.clock.unix_ms()
        for number, lost in change.shrunk:
            self.live[number] = [p for p in self.live[number] if p.partition_id not in lost]
        self.bounds |= {row.partition_id: row for row in change.bounds}
        self.next_sequence = change.next_sequence
        self.reserved(numbers, epoch)

    @rule(data=st.data(), age_ms=st.integers(0, 30))
    def sweep(self, data: st.DataObject, age_ms: int) -> None:
        before_ms = self.clock.unix_ms() - age_ms
        some = (
            st.sets(st.sampled_from(sorted(self.pending))) if self.pending else st.just(set())
        )
        keep = data.draw(some)
        old = {n for n, (_, at_ms) in self.pending.items() if at_ms < before_ms} - keep

        count = self.index.sweep_pending(
            self.owners[-1].epoch, before_unix_ms=before_ms, keep=frozenset(keep)
        )

        assert count == len(old)
        for number in old:
            del self.pending[number]
            self.died_ms[number] = self.clock.unix_ms()
            self.never_live.add(number)

    @rule(ms=st.integers(1, 40))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        now_ms = self.clock.unix_ms()
        self.leases = {i: lease for i, lease in self.leases.items() if lease[0] > now_ms}

    @rule()
    def take_lease(self) -> None:
        lease = self.index.take_lease("spark", ttl_ms=TTL_MS)
        self.leases[lease] = (self.clock.unix_ms() + TTL_MS, frozenset(self.died_ms))

    @precondition(lambda self: self.leases)
    @rule(is_end=st.booleans(), data=st.data())
    def end_or_extend_lease(self, is_end: bool, data: st.DataObject) -> None:  # noqa: FBT001
        lease = data.draw(st.sampled_from(list(self.leases)))
        if is_end:
            self.index.end_lease(lease)
            del self.leases[lease]
            return
        assert self.index.extend_lease(lease, ttl_ms=TTL_MS)
        self.leases[lease] = (self.clock.unix_ms() + TTL_MS, self.leases[lease][1])

    @rule(age_ms=st.integers(0, 30), limit=st.integers(1, 4))
    def delete(self, age_ms: int, limit: int) -> None:
        before_ms = self.clock.unix_ms() - age_ms
        epoch = self.owners[-1].epoch
        replaced = [number for number, (one, _) in self.pending.items() if one < epoch]
        first = min([*self.never_live, *replaced], default=1 << 62)
        due = [
            number
            for number, at_ms in sorted(self.died_ms.items())
            if at_ms < before_ms and not self.is_leased(number)
            if number in self.never_live or number < first
        ]

        dead = [number for number, _ in self.index.dead(before_unix_ms=before_ms, limit=limit)]

        assert dead == due[:limit]
        self.index.forget([*dead, *self.live, *self.pending])
        for number in dead:
            del self.died_ms[number]
            self.never_live.discard(number)

    def is_leased(self, number: int) -> bool:
        return number not in self.never_live and any(
            number not in dead_before for _, dead_before in self.leases.values()
        )

    @invariant()
    def what_is_loaded_is_what_is_live(self) -> None:
        loaded = self.index.load()
        assert {stored.number: parts for stored, parts in loaded.objects} == self.live
        assert loaded.bounds == [self.bounds[at] for at in sorted(self.bounds)]


TestIndexModel = IndexModel.TestCase
TestIndexModel.settings = settings(
    max_examples=examples(15), stateful_step_count=25, deadline=None
)
