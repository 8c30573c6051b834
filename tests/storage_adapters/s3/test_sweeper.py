"""Unused objects are deleted, late enough, and after a crash at any step."""

import asyncio

import pytest
from structlog.testing import capture_logs

from gateway.errors import StorageUnavailable
from gateway.testing.storage import make_entry
from storage_adapters.s3.merge_plan import is_shared
from storage_adapters.s3.state import KIND_SETTLED
from tests.storage_adapters.s3.merge_house import footer_of
from tests.storage_adapters.s3.merging_house import House, NewHouse, fill

HOUR_MS = 3_600_000


async def _sweep(house: House, after_ms: int = 0) -> list[int]:
    house.clock.advance(after_ms)
    await house.sweeper.run_due()
    return house.keys()


async def test_dead_objects_are_deleted_when_nobody_reads_them_any_more(
    new_house: NewHouse,
) -> None:
    house = await new_house()
    await fill(house)
    before = house.contents()
    await house.merger.run_due()
    live = sorted(house.catalog.objects)

    assert len(await _sweep(house, HOUR_MS)) == 6
    assert await _sweep(house, 1) == live
    assert house.contents(house.restarted()) == before
    assert (house.sweeper.deleted_objects, house.sweeper.failures) == (4, 0)
    assert house.index.dead(before_unix_ms=1 << 60, limit=10) == []


async def test_a_lease_keeps_what_died_under_it(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house)
    lease = await house.committer.run(lambda i: i.take_lease("spark", ttl_ms=10 * HOUR_MS))
    await house.merger.run_due()

    assert len(await _sweep(house, 2 * HOUR_MS)) == 6
    await house.committer.run(lambda i: i.end_lease(lease))
    assert len(await _sweep(house)) == 2


async def test_objects_that_were_never_committed_are_deleted(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house, 1)
    new = await house.put([make_entry((9, 0))])
    number = new.stored.number
    assert number in await _sweep(house, 3 * HOUR_MS)  # It is still meant to be committed.

    house.committer.give_up(number)

    assert number in await _sweep(house, 1)  # Dead now, deleted an hour later.
    assert number not in await _sweep(house, HOUR_MS + 1)
    assert not house.faults


async def test_what_another_node_began_is_deleted_and_cannot_be_committed(
    new_house: NewHouse,
) -> None:
    old = await new_house()
    await fill(old, 1)
    new = await old.put([make_entry((9, 0))])
    node = await new_house()
    assert node.committer.epoch == 2

    assert new.stored.number in await _sweep(node, HOUR_MS + 1)
    assert new.stored.number not in await _sweep(node, HOUR_MS + 1)
    with pytest.raises(StorageUnavailable):
        await old.append(make_entry((1, 4)))
    assert len(old.faults) == 1


async def test_a_crash_between_key_and_row_changes_nothing(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house)
    await house.merger.run_due()
    live = sorted(house.catalog.objects)
    forget = house.sweeper._forget

    async def crash(numbers: list[int]) -> None:
        raise StorageUnavailable(str(len(numbers)))

    house.sweeper._forget = crash  # type: ignore[method-assign]
    assert await _sweep(house, HOUR_MS + 1) == live
    assert house.sweeper.failures == 1
    house.sweeper._forget = forget  # type: ignore[method-assign]

    assert await _sweep(house) == live
    assert (house.sweeper.deleted_objects, house.sweeper.failures) == (4, 1)


async def test_own_objects_below_the_log_start_go_and_leave_a_note(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house)
    await house.merger.run_due()
    await house.truncate(1, 4)
    own = next(o for o in house.catalog.objects.values() if not is_shared(o))

    await house.sweeper.run_due()

    assert own.number not in house.catalog.objects
    note = max(house.catalog.objects.values())
    assert (note.kind, note.partition_ids, is_shared(note)) == (KIND_SETTLED, frozenset(), True)
    data = house.bucket.get(
        f"{house.config.prefix}objects/{note.number:016}-1.seg", 0, note.size_bytes
    )
    part = footer_of(data).find(1)
    assert part is not None
    assert (part.start, part.row_count) == (4, 0)
    restarted = house.restarted()
    assert (restarted.partition(1).start, restarted.partition(1).end) == (4, 4)
    assert set(restarted.objects) == set(house.catalog.objects)
    assert own.number not in await _sweep(house, HOUR_MS + 1)


async def test_half_dead_shared_objects_are_copied(new_house: NewHouse) -> None:
    house = await new_house(partition_object_bytes_min=100_000)
    await fill(house)
    await house.merger.run_due()
    (old,) = house.catalog.objects.values()
    await house.delete(1)

    await house.sweeper.run_due()

    (new,) = house.catalog.objects.values()
    assert (new.first_sequence, new.next_sequence) == (1, 13)
    assert new.partition_ids == {2, 3}
    assert new.size_bytes < old.size_bytes / 2
    assert house.contents(house.restarted()) == house.contents()
    await house.sweeper.run_due()
    assert list(house.catalog.objects) == [new.number]  # Once is enough.


async def test_bounds_of_deleted_partitions_are_forgotten_in_the_end(
    new_house: NewHouse,
) -> None:
    house = await new_house(partition_object_bytes_min=100_000)
    await fill(house)
    await house.merger.run_due()
    await house.delete(1)
    await house.sweeper.run_due()
    assert house.restarted().partition(1).is_deleted

    await _sweep(house, 2 * HOUR_MS - 1)
    assert house.restarted().partition(1).is_deleted
    await _sweep(house, 1)

    assert 1 not in house.restarted().partitions
    assert 1 not in house.catalog.partitions


async def test_bounds_stay_while_an_object_has_what_they_hide(new_house: NewHouse) -> None:
    house = await new_house(partition_object_bytes_min=100_000)
    await fill(house)
    await house.merger.run_due()
    await house.delete(3)  # Too little for a copy.
    await _sweep(house, HOUR_MS)
    await _sweep(house, 5 * HOUR_MS)
    assert house.restarted().partition(3).is_deleted


async def test_a_mistake_of_ours_is_told_of_and_sweeping_goes_on(new_house: NewHouse) -> None:
    house = await new_house(sweep_interval_ms=10)
    sweeps = 0
    gone_on = asyncio.Event()

    async def tidy() -> None:
        nonlocal sweeps
        sweeps += 1
        if sweeps == 1:
            raise ValueError("a mistake of ours")
        gone_on.set()

    house.merger.tidy = tidy  # type: ignore[method-assign]
    with capture_logs() as lines:
        house.sweeper.start()
        await asyncio.wait_for(gone_on.wait(), 60)

    assert house.sweeper.failures == 1
    (told,) = [line for line in lines if line["event"] == "a sweep failed"]
    assert isinstance(told["exc_info"], ValueError)
