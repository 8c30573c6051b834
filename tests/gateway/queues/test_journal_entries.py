"""One journal entry a turn, equal to the turn's changes one by one."""

import asyncio
from itertools import chain
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from features.queue import journal, journal_layout, journal_parser
from features.queue.delivery import each_taken
from features.queue.lane import Lane
from features.queue.model import BY_TIME, Order, Policy, Run
from features.ranges import contiguous_ranges
from gateway.queues.journal_entries import LaneChanges
from gateway.queues.model import Outcome
from tests.features.queue.lanes import taking
from tests.gateway.queues.queue_node import is_fed, running, take

ACK = Outcome.ACK
POLICY = Policy(Order.FAIR)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["row", "row", "ack", "ack", "take", "back"]), st.integers(0, 99)
    ),
    max_size=30,
)


@given(calls=CALLS, turns=st.lists(st.integers(0, 29), max_size=3))
def test_a_gathered_entry_says_what_its_changes_say(
    calls: list[tuple[str, int]], turns: list[int]
) -> None:
    lane = Lane(POLICY, 0)
    lane.feed([Run(0, 300, None), Run(303, 600, None)], 1)
    one_by_one: list[bytes] = []
    together: list[bytes] = []
    gathered = LaneChanges()
    ids: list[tuple[int, int]] = []
    for index, (call, number) in enumerate(calls):
        now = 100 + number % 3
        if index in turns:
            together.append(gathered.entry())
            gathered = LaneChanges()
        if call == "row":
            ranges, effects = lane.take_ranges(
                1 + number % 10, holder=BY_TIME, lease_ms=50, now=now
            )
            ids += [(one.offset, one.attempt) for one in each_taken(ranges)]
            one_by_one.append(journal.entry_of(effects) or b"")
            if effects.taken is not None:
                gathered.take(effects.taken)
            elif effects.journal is not None:
                gathered.add(effects.journal)
        elif call == "ack" and ids:
            some = [ids.pop(number % len(ids)) for _ in range(min(len(ids), 1 + number % 4))]
            done = [
                one[0]
                for one, result in zip(some, lane.ack(some, now=now)[0], strict=True)
                if result == 0
            ]
            gathered.done(list(contiguous_ranges(sorted(done))))
            one_by_one.append(journal.encode_done(done))
        elif call in {"take", "back"}:
            if call == "take":
                taken, effects = taking(lane, 3, holder=BY_TIME, lease_ms=70, now=now)
                ids += [(one.offset, one.attempt) for one in taken]
            else:
                _, effects = lane.release(ids[:2], delay_ms=0, now=now)
            if effects.journal is not None:
                gathered.add(effects.journal)
                one_by_one.append(effects.journal)
    together.append(gathered.entry())

    assert replayed(together) == replayed(one_by_one)


def replayed(entries: list[bytes]) -> tuple[object, ...]:
    """Return the lane that entries make: what comes next, each lease, each that waits."""
    lane = Lane(POLICY, 0)
    for entry in entries:
        lane.apply(entry)
    (snapshot,) = journal_parser.parse(lane.snapshot())
    assert isinstance(snapshot, journal_layout.Snapshot)
    leases = [(one.due_unix_ms, one.group) for one in snapshot.leases]
    waiting = [(one.due_unix_ms, one.group) for one in snapshot.waiting]
    return snapshot.next_offset, named(leases), named(waiting)


def named(groups: list[tuple[int, journal_layout.Group]]) -> list[tuple[int, int, int, int]]:
    """Return what is said of each message."""
    return sorted(
        (offset, due_unix_ms, group.attempts, group.first_taken_unix_ms)
        for due_unix_ms, group in groups
        for offset in chain.from_iterable(group.offsets)
    )


async def test_a_turn_of_a_lane_is_one_record(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        queue = await world.queue()
        await world.send(queue, *[b"%d" % n for n in range(40)])
        got = [await take(queue, 4) for _ in range(5)]
        partition = world.queues._context.journal.partitions[0]
        await world.turn()
        before = partition.log_end_offset
        left = len(got)
        done: asyncio.Future[None] = asyncio.Future()

        def on_done(_results: object, error: object) -> None:
            nonlocal left
            assert error is None
            left -= 1
            if not left:
                done.set_result(None)

        for some in got:
            queue.settle([(one.delivery_id, ACK) for one in some], on_done)
        await done

        assert partition.log_end_offset == before + 1
        await world.restart()
        queue = world.find()
        await world.until(lambda: is_fed(queue))
        assert queue.counts() == (20, 0, 0)
