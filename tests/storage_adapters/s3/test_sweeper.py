"""Unused objects are deleted, late enough, and after a crash at any step."""

import asyncio

import pytest
from structlog.testing import capture_logs

from gateway.errors import StorageUnavailable
from gateway.testing.storage import make_entry
from storage_adapters.s3.merge_plan import is_shared
from storage_adapters.s3.state import KIND_SETTLED
from tests.storage_adapters.s3.merge_catalog import footer_of
from tests.storage_adapters.s3.merging_setup import MergingSetup, NewSetup, fill

HOUR_MS = 3_600_000


async def _sweep(setup: MergingSetup, after_ms: int = 0) -> list[int]:
    setup.clock.advance(after_ms)
    await setup.sweeper.run_due()
    return setup.keys()


async def test_dead_objects_are_deleted_when_nobody_reads_them_any_more(
    new_setup: NewSetup,
) -> None:
    setup = await new_setup()
    await fill(setup)
    before = setup.contents()
    await setup.merger.run_due()
    live = sorted(setup.catalog.objects)

    assert len(await _sweep(setup, HOUR_MS)) == 6
    assert await _sweep(setup, 1) == live
    assert setup.contents(setup.restarted()) == before
    assert (setup.sweeper.deleted_objects, setup.sweeper.failures) == (4, 0)
    assert setup.index.dead(before_unix_ms=1 << 60, limit=10) == []


async def test_a_lease_keeps_what_died_under_it(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    lease = await setup.committer.run(lambda i: i.take_lease("spark", ttl_ms=10 * HOUR_MS))
    await setup.merger.run_due()

    assert len(await _sweep(setup, 2 * HOUR_MS)) == 6
    await setup.committer.run(lambda i: i.end_lease(lease))
    assert len(await _sweep(setup)) == 2


async def test_objects_that_were_never_committed_are_deleted(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup, 1)
    new = await setup.put([make_entry((9, 0))])
    number = new.stored.number
    assert number in await _sweep(setup, 3 * HOUR_MS)  # It is still meant to be committed.

    setup.committer.give_up(number)

    assert number in await _sweep(setup, 1)  # Dead now, deleted an hour later.
    assert number not in await _sweep(setup, HOUR_MS + 1)
    assert not setup.faults


async def test_what_another_node_began_is_deleted_and_cannot_be_committed(
    new_setup: NewSetup,
) -> None:
    old = await new_setup()
    await fill(old, 1)
    new = await old.put([make_entry((9, 0))])
    node = await new_setup()
    assert node.committer.epoch == 2

    assert new.stored.number in await _sweep(node, HOUR_MS + 1)
    assert new.stored.number not in await _sweep(node, HOUR_MS + 1)
    with pytest.raises(StorageUnavailable):
        await old.append(make_entry((1, 4)))
    assert len(old.faults) == 1


async def test_a_crash_between_key_and_row_changes_nothing(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    await setup.merger.run_due()
    live = sorted(setup.catalog.objects)
    forget = setup.sweeper._forget

    async def crash(numbers: list[int]) -> None:
        raise StorageUnavailable(str(len(numbers)))

    setup.sweeper._forget = crash  # type: ignore[method-assign]
    assert await _sweep(setup, HOUR_MS + 1) == live
    assert setup.sweeper.failures == 1
    setup.sweeper._forget = forget  # type: ignore[method-assign]

    assert await _sweep(setup) == live
    assert (setup.sweeper.deleted_objects, setup.sweeper.failures) == (4, 1)


async def test_own_objects_below_the_log_start_go_and_leave_a_note(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    await setup.merger.run_due()
    await setup.truncate(1, 4)
    own = next(o for o in setup.catalog.objects.values() if not is_shared(o))

    await setup.sweeper.run_due()

    assert own.number not in setup.catalog.objects
    note = max(setup.catalog.objects.values())
    assert (note.kind, note.partition_ids, is_shared(note)) == (KIND_SETTLED, frozenset(), True)
    data = setup.bucket.get(
        f"{setup.config.prefix}objects/{note.number:016}-1.seg", 0, note.size_bytes
    )
    part = footer_of(data).find(1)
    assert part is not None
    assert (part.start, part.row_count) == (4, 0)
    restarted = setup.restarted()
    assert (restarted.partition(1).start, restarted.partition(1).end) == (4, 4)
    assert set(restarted.objects) == set(setup.catalog.objects)
    assert own.number not in await _sweep(setup, HOUR_MS + 1)


async def test_half_dead_shared_objects_are_copied(new_setup: NewSetup) -> None:
    setup = await new_setup(partition_object_bytes_min=100_000)
    await fill(setup)
    await setup.merger.run_due()
    (old,) = setup.catalog.objects.values()
    await setup.delete(1)

    await setup.sweeper.run_due()

    (new,) = setup.catalog.objects.values()
    assert (new.first_sequence, new.next_sequence) == (1, 13)
    assert new.partition_ids == {2, 3}
    assert new.size_bytes < old.size_bytes / 2
    assert setup.contents(setup.restarted()) == setup.contents()
    await setup.sweeper.run_due()
    assert list(setup.catalog.objects) == [new.number]  # Once is enough.


async def test_bounds_of_deleted_partitions_are_forgotten_in_the_end(
    new_setup: NewSetup,
) -> None:
    setup = await new_setup(partition_object_bytes_min=100_000)
    await fill(setup)
    await setup.merger.run_due()
    await setup.delete(1)
    await setup.sweeper.run_due()
    assert setup.restarted().partition(1).is_deleted

    await _sweep(setup, 2 * HOUR_MS - 1)
    assert setup.restarted().partition(1).is_deleted
    await _sweep(setup, 1)

    assert 1 not in setup.restarted().partitions
    assert 1 not in setup.catalog.partitions


async def test_bounds_stay_while_an_object_has_what_they_hide(new_setup: NewSetup) -> None:
    setup = await new_setup(partition_object_bytes_min=100_000)
    await fill(setup)
    await setup.merger.run_due()
    await setup.delete(3)  # Too little for a copy.
    await _sweep(setup, HOUR_MS)
    await _sweep(setup, 5 * HOUR_MS)
    assert setup.restarted().partition(3).is_deleted


async def test_a_mistake_of_ours_is_told_of_and_sweeping_goes_on(new_setup: NewSetup) -> None:
    setup = await new_setup(sweep_interval_ms=10)
    sweeps = 0
    gone_on = asyncio.Event()

    async def tidy() -> None:
        nonlocal sweeps
        sweeps += 1
        if sweeps == 1:
            raise ValueError("a mistake of ours")
        gone_on.set()

    setup.merger.tidy = tidy  # type: ignore[method-assign]
    with capture_logs() as lines:
        setup.sweeper.start()
        await asyncio.wait_for(gone_on.wait(), 60)

    assert setup.sweeper.failures == 1
    (told,) = [line for line in lines if line["event"] == "a sweep failed"]
    assert isinstance(told["exc_info"], ValueError)
