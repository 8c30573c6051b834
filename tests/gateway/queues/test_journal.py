"""The journal: small, read back, right on a full disk and after a refusal."""

from pathlib import Path

import pytest

from features.queue.model import Result
from gateway.errors import StorageFull
from gateway.queues import journal as queue_journal
from gateway.queues import snapshot_pieces
from gateway.queues.journal_entries import LARGE_BYTES
from gateway.queues.model import Outcome
from gateway.storage import Entry, OnDone
from tests.gateway.queues.queue_node import (
    World,
    is_fed,
    running,
    settle,
    take,
    take_now,
    try_settle,
    values,
)

MIB = 1 << 20


@pytest.mark.heavy
async def test_the_journal_stays_small(tmp_path: Path) -> None:
    async with running(tmp_path, journal_room_bytes=MIB) as world:
        queue = await world.queue(lease_ms=60_000)
        await world.send(queue, *[b"%d" % n for n in range(3_000)])
        journal = world.queues._context.journal
        held = await take(queue, 1)
        while journal.rewrites < 2:
            got = await take(queue)
            assert len(got) == 10
            await settle(queue, got, Outcome.RELEASE)
        await world.until(lambda: journal.stored_bytes < 2 * MIB)
        counts = queue.counts()
        await settle(queue, held)
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert sum(queue.counts()) == sum(counts) - 1
        got = await take(queue, 1)
        assert got[0].attempt > 1


@pytest.mark.heavy
async def test_a_long_journal_is_short_after_a_stop(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(lease_ms=60_000)
        journal = world.queues._context.journal
        await world.send(queue, *[b"%d" % n for n in range(100)])
        while journal.stored_bytes < 2 * MIB:
            got = take_now(queue, 100)
            assert got
            for some in (got[::2], got[1::2]):  # offsets with gaps make long entries
                items = [(one.delivery_id, Outcome.RELEASE) for one in some]
                queue.settle(items, lambda *_: None)
            world.queues._context.journal.seal()
            await world.turn()
        counts = queue.counts()
        await world.restart()
        assert world.queues._context.journal.stored_bytes < 100_000
        assert world.find().counts() == counts


async def test_messages_are_settled_on_a_full_disk(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead")
        await world.send(queue, b"a", b"b", b"c")
        got = await take(queue)
        fill(world)
        assert await settle(queue, got[:1]) == [Result.DONE]
        _, error = await try_settle(queue, got[1:2], Outcome.REJECT)
        assert error is not None, "a dead letter is a new record, for which there is no room"
        drain(world)
        world.advance(5_001)
        await world.until(lambda: dead.counts().ready == 1)
        assert queue.counts() == (0, 1, 0)


async def test_an_acknowledgement_that_is_not_kept_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue(lease_ms=1_000)
        await world.send(queue, b"a", b"b")
        got = await take(queue)
        fill(world, reserved_too=True)
        _, error = await try_settle(queue, got[:1])
        assert isinstance(error, StorageFull)
        assert queue.counts() == (0, 2, 0)
        world.advance(1_001)
        again = await take(queue)
        assert [one.attempt for one in again] == [2, 2]
        drain(world)
        assert await settle(queue, again[:1]) == [Result.DONE]
        await world.restart()
        queue = world.find()
        assert queue.counts() == (0, 1, 0), "what was refused before is in the next entry"
        world.advance(1_001)
        again = await take(queue)
        assert [(one.record.value, one.attempt) for one in again] == [(b"b", 3)]


async def test_a_message_is_in_one_queue_whenever_the_disk_is_full(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        dead = await world.queue("dead")
        queue = await world.queue(dead_letter_topic="dead", attempts_max=1)
        await world.send(queue, *[b"%d" % n for n in range(300)])
        fill(world, reserved_too=True)
        for one in (await take(queue, 300))[::2]:
            queue.settle([(one.delivery_id, Outcome.REJECT)], lambda *_: None)
        await world.turn()
        drain(world)
        world.advance(30_001)
        assert await take(queue, 300) == []  # those that were not rejected
        world.advance(5_001)
        await world.until(lambda: dead.counts().ready == 300)
        assert queue.counts() == (0, 0, 0)
        await world.until(lambda: is_fed(dead))
        letters = await take(dead, 300)
        assert len(set(values(letters))) == 300


async def test_an_entry_that_is_too_large_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(queue_journal._CONFIGS, "max.message.bytes", "10000")
    async with running(tmp_path) as world:
        queue = await world.queue(order="key")
        for number in range(6):
            await world.send(queue, b"%d" % number, key=b"%02d" % number * 1_500)
        got = await take(queue, 6)
        assert values(got) == [b"%d" % number for number in range(6)]
        _, error = await try_settle(queue, got[:1])
        assert error is not None
        assert queue.counts() == (0, 6, 0)
        assert await settle(queue, got[:4]) == [Result.DONE] * 4
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert queue.counts() == (0, 2, 0)


class ALane:
    """Has entries; see ``gateway.queues.journal.Journaled``."""

    lane_id = bytes(20) + b"group"
    is_ahead = False
    has_left = False
    is_gone = False
    text = b"all"

    def snapshot(self) -> bytes:
        return self.text


async def test_what_is_refused_to_make_room_for_the_next_entry_is_remembered(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as world:
        journal, lane = world.queues._context.journal, ALane()
        fill(world, reserved_too=True)
        refused: list[object] = []
        journal.put(lane, bytes(MIB), refused.append)
        journal.put(lane, bytes(LARGE_BYTES + 1))
        assert len(refused) == 1, "there is no room for two in one append"
        assert lane.is_ahead
        drain(world)
        await world.turn()
        assert journal.part(lane, b"later")[1].values == (b"all",)
        assert vars(lane) == {"is_ahead": False}
        journal.note([lane], StorageFull("the disk is full"))
        assert vars(lane) == {"is_ahead": True}


async def grouped(world: World, topic: str = "work") -> None:
    """Send messages of long keys, so that a snapshot is long."""
    queue = world.find(topic)
    for number in range(30):
        await world.send(queue, b"%d" % number, key=b"%02d" % number * 500)


async def test_a_snapshot_that_no_record_can_hold_goes_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(queue_journal._CONFIGS, "max.message.bytes", "10000")
    monkeypatch.setattr(snapshot_pieces, "PIECE_BYTES_MAX", 5_000)
    async with running(tmp_path) as world:
        queue = await world.queue(order="key", lease_ms=60_000)
        await grouped(world)
        got = [*await take(queue, 8), *await take(queue, 8), *await take(queue, 8)]
        assert len(got) == 24
        journal = world.queues._context.journal
        [lane] = queue.lanes
        assert len(lane.snapshot()) > 20_000
        lane.is_ahead = True

        assert await settle(queue, got[:1]) == [Result.DONE]
        counts = queue.counts()
        await world.restart()

        queue = world.find()
        assert journal.refusals == 0
        assert queue.counts() == counts


async def test_a_snapshot_of_which_a_piece_is_missing_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_pieces, "PIECE_BYTES_MAX", 10)
    async with running(tmp_path) as world:
        await world.queue()  # it is its stream that is used
        journal, lane = world.queues._context.journal, ALane()
        start = journal.partitions[0].high_watermark

        async def entries() -> list[tuple[bytes, bool]]:
            found: list[tuple[bytes, bool]] = []
            await world.turn()
            await journal.load(
                lambda key, entry, is_all: (
                    found.append((entry, is_all)) if key == lane.lane_id else None
                )
            )
            return found

        lane.text = b"0123456789" * 3 + b"end"
        lane.is_ahead = True
        fill(world, reserved_too=True)
        part = journal.part(lane, b"later")  # its pieces are refused, it is not
        drain(world)
        assert lane.is_ahead
        journal._coalescer.add(*part, lambda _: None)
        torn = await entries()
        journal.put(lane, b"later")
        whole = await entries()

        assert journal.partitions[0].high_watermark > start
        assert torn == []
        assert whole == [(lane.text, True)]


class FullDisk:
    """Stands before a storage's ``enqueue``."""

    def __init__(self, world: World, *, reserved_too: bool) -> None:
        self._enqueue = world.storage.enqueue
        self._reserved_too = reserved_too

    def __call__(
        self, entries: list[Entry], on_done: OnDone, *, reserved: bool = False
    ) -> None:
        if not reserved or self._reserved_too:
            raise StorageFull("the disk is full")
        self._enqueue(entries, on_done, reserved=reserved)


def fill(world: World, *, reserved_too: bool = False) -> None:
    world.storage.enqueue = FullDisk(world, reserved_too=reserved_too)  # type: ignore[method-assign,assignment]


def drain(world: World) -> None:
    del world.storage.enqueue
