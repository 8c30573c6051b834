"""Entries of the journal while a round of them is refused midway, and who was told so puts more."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from features.queue.journal import encode_done
from features.queue.lane import Lane
from features.queue.model import BY_TIME, Order, Outcome, Policy, Run, SettledRange
from gateway.errors import StorageFull, StorageUnavailable
from gateway.queues.journal import QueueJournal
from gateway.queues.journal_entries import GATHERED_BYTES_MAX, LARGE_BYTES, EntryAssembler
from gateway.records.codec import iter_records
from gateway.storage import Entry, OnDone
from storage_adapters.memory import MemoryStorage
from tests.features.queue.lanes import taking
from tests.gateway import kernel_in_memory as houses
from tests.gateway.kernel_in_memory import House, outcome, running

FAIR = Policy(Order.FAIR)
PIECE_BYTES = 1 << 19
WITHIN_S = 60


class FullNow(MemoryStorage):
    """A storage that refuses what is appended next, as often as it is told to."""

    refusals = 0

    def enqueue(
        self, entries: Sequence[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        if reserved and FullNow.refusals:
            FullNow.refusals -= 1
            raise StorageFull("full")
        super().enqueue(entries, on_done, reserved=reserved)


class Journaled:
    """A lane in the journal. ``padding``: a snapshot of so many bytes."""

    def __init__(self, name: bytes, lane: Lane, padding_bytes: int = 0) -> None:
        self.lane_id = name.ljust(20, b"-")
        self.is_ahead = self.is_gone = self.has_left = False
        self.lane = lane
        self._padding = b"\5" * padding_bytes

    def snapshot(self) -> bytes:
        return self._padding or self.lane.snapshot()


class World:
    """A journal over a storage that can be full. ``pieces``: a lane whose snapshot is several."""

    def __init__(self, house: House, journal: QueueJournal) -> None:
        self.house = house
        self.journal = journal
        self.pieces = Journaled(b"pieces", Lane(FAIR, 0), 2 * PIECE_BYTES + 1)
        self.other = Journaled(b"other", Lane(FAIR, 0))
        self.lane = Journaled(b"lane", Lane(FAIR, 0))

    async def begin(self) -> None:
        """Write down the lanes."""
        lanes = [self.lane, self.other]
        assert await outcome(lambda done: self.journal.put_snapshots(lanes, done)) is None

    def refuse_a_piece(self) -> None:
        """Refuse the first piece of a snapshot, and the rest of its round."""
        self.pieces.is_ahead = True
        self.journal.put(self.pieces, b"")
        FullNow.refusals = 1

    def replayed(self, policy: Policy = FAIR) -> Lane:
        """Return the lane as a start would find it."""
        again = Lane(policy, 0)
        for entry, _ in self.entries():
            again.apply(entry)
        return again

    def entries(self) -> list[tuple[bytes, bool]]:
        """Return the lane's entries, and whether each is a snapshot."""
        found: list[tuple[bytes, bool]] = []

        def on_entry(lane_id: bytes, entry: bytes, is_snapshot: bool) -> None:  # noqa: FBT001
            if lane_id == self.lane.lane_id:
                found.append((entry, is_snapshot))

        assembly = EntryAssembler(on_entry)
        offset, partition = 0, self.journal.partitions[0]
        while offset < partition.high_watermark:
            batches = self.house.broker.read(partition, offset, bytes_max=1 << 30)
            assert batches is not None  # all of it is in memory
            for batch in batches:
                for record in iter_records(batch):
                    assert record.key is not None
                    assert record.value is not None
                    assembly.add(record.key, record.value, record.headers)
                    offset = record.offset + 1
        return found


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(houses, "MemoryStorage", FullNow)
    monkeypatch.setattr(FullNow, "refusals", 0)
    async with running(tmp_path) as house:
        journal = await QueueJournal.open(
            house.broker, house.topics, house.clock, room_bytes=1 << 30
        )
        await journal.load(lambda *_: None)
        yield World(house, journal)


def _answer() -> "asyncio.Future[StorageUnavailable | None]":
    return asyncio.get_running_loop().create_future()


async def test_a_take_stays_before_what_is_done_by_one_who_was_refused(world: World) -> None:
    await world.begin()
    journal, lane = world.journal, world.lane
    lane.lane.feed([Run(0, 99, None)], 1)
    done = _answer()

    def delete(
        error: StorageUnavailable | None,
    ) -> None:  # as a request that waited does, at once
        assert error is not None
        settled = [SettledRange(range(10), 1, Outcome.ACK)]
        counts, effects = lane.lane.settle_ranges(settled, holder=BY_TIME, now=5)
        assert counts == [10]
        journal.put_done(lane, effects.done, done.set_result)

    journal.put_done(world.other, [range(1, 2)], delete)
    world.refuse_a_piece()
    _, effects = lane.lane.take_ranges(10, holder=BY_TIME, lease_ms=30_000, now=5)
    assert effects.taken is not None
    journal.put_taken(lane, effects.taken)

    assert await asyncio.wait_for(done, WITHIN_S) is None
    assert world.replayed().open_count == 0


async def test_a_large_change_stays_before_what_one_puts_who_was_refused(world: World) -> None:
    await world.begin()
    journal, lane = world.journal, world.lane
    done = _answer()
    large = encode_done(range(0, 2_000, 2))
    assert len(large) > LARGE_BYTES

    one = [range(1, 2)]
    journal.put_done(world.other, one, lambda _: journal.put_done(lane, one, done.set_result))
    world.refuse_a_piece()
    journal.put(lane, large)

    assert await asyncio.wait_for(done, WITHIN_S) is None
    changes = [entry for entry, is_snapshot in world.entries() if not is_snapshot]
    assert changes[0].startswith(large)


async def test_what_is_put_while_room_is_made_is_kept_and_answered(world: World) -> None:
    world.pieces = Journaled(b"pieces", Lane(FAIR, 0), PIECE_BYTES + 9)  # one, and an end
    await world.begin()
    journal, lane = world.journal, world.lane
    nested, last = _answer(), _answer()
    journal.put_done(
        world.other,
        [range(1, 2)],
        lambda _: journal.put_done(lane, [range(9_999, 10_000)], nested.set_result),
    )
    world.refuse_a_piece()
    some = [range(at, at + 1) for at in range(0, GATHERED_BYTES_MAX // 4, 2)]
    journal.put_done(lane, some, lambda _: None)

    journal.put_done(lane, [range(1, 2)], last.set_result)

    assert await asyncio.wait_for(last, WITHIN_S) is None
    assert await asyncio.wait_for(nested, WITHIN_S) is None


async def test_the_end_of_a_snapshot_does_not_count_without_its_pieces(world: World) -> None:
    policy, count = Policy(Order.NONE, in_flight_max=200_000), 90_000
    lane = world.lane = Journaled(b"lane", Lane(policy, 0))
    await world.begin()
    lane.lane.feed([Run(0, count - 1, None)], 1)
    _, effects = taking(lane.lane, count, holder=BY_TIME, lease_ms=10**9, now=5)
    world.journal.put(lane, effects.journal or b"")
    _, effects = lane.lane.ack([(offset, 1) for offset in range(0, count, 2)], now=5)
    assert (
        await outcome(lambda done: world.journal.put(lane, effects.journal or b"", done))
        is None
    )
    assert len(lane.snapshot()) > PIECE_BYTES

    lane.is_ahead = True  # an entry was refused before
    FullNow.refusals = 1
    _, effects = lane.lane.ack([(1, 1)], now=6)

    error = await outcome(lambda done: world.journal.put(lane, effects.journal or b"", done))
    assert isinstance(error, StorageUnavailable)
    assert world.replayed(policy).open_count == count // 2
