"""Rounds of merging on a real bucket and index: nothing is lost, whatever happens meanwhile."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from structlog.testing import capture_logs

from gateway.errors import StorageUnavailable
from storage_adapters.s3.index import Index
from storage_adapters.s3.merge_pace import LOOKS_MAX
from storage_adapters.s3.merge_plan import is_shared
from storage_adapters.s3.merged_change import Replacement
from storage_adapters.s3.merged_object import PACE_BYTES, MergedObject
from storage_adapters.s3.state import KIND_LOG, StoredObject, object_key
from tests.storage_adapters.s3.merging_house import House, NewHouse, fill
from tests.support.s3_servers import S3Server


async def test_small_objects_become_few(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house)
    before = house.contents()

    await house.merger.run_due()

    own, shared = sorted(house.catalog.objects.values(), key=is_shared)
    assert own.partition_ids == {1}
    assert shared.partition_ids == {2, 3}
    assert (shared.first_sequence, shared.next_sequence) == (1, 13)
    assert house.contents() == before
    assert house.contents(house.restarted()) == before
    assert house.restarted().objects == house.catalog.objects
    assert house.forgotten == [1, 2, 3, 4]
    assert (house.merger.rounds, house.merger.merged_objects) == (1, 4)
    # The inputs are there still, for those who read them.
    assert len(house.keys()) == 6


async def test_inputs_that_are_in_memory_are_not_read_again(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house)
    first, *rest = house.catalog.objects.values()
    for stored in rest:
        key = object_key(house.config.prefix, stored.number, stored.epoch)
        house.tail[stored.number] = house.bucket.get(key, 0, stored.size_bytes)
    before = house.contents()
    received_bytes = house.bucket.statistics.received_bytes

    await house.merger.run_due()

    assert house.bucket.statistics.received_bytes == received_bytes + first.size_bytes
    assert house.contents() == before
    assert house.contents(house.restarted()) == before


async def test_what_may_be_scanned_is_not_merged(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house)
    house.merger._released = 4
    await house.merger.run_due()
    assert {o.kind for o in house.catalog.objects.values()} == {KIND_LOG}


async def test_shared_objects_are_merged_again(new_house: NewHouse) -> None:
    house = await new_house(partition_object_bytes_min=1_000_000)
    await fill(house, 16)
    before = house.contents()
    await house.merger.run_due()
    assert [o.first_sequence for o in house.catalog.objects.values()] == [1]
    assert house.contents(house.restarted()) == before


async def test_small_own_objects_are_merged_again(new_house: NewHouse) -> None:
    house = await new_house(partition_object_bytes_min=20_000)
    for _ in range(4):
        await fill(house, 4, large=6_000)
        await house.merger.run_due()
    before = house.contents()
    own = [o for o in house.catalog.objects.values() if not is_shared(o)]
    assert len(own) == 4
    house.merger._config = house.config.model_copy(
        update={"partition_object_bytes_min": 30_000}
    )
    house.merger.touch(1)

    await house.merger.run_due()

    own = [o for o in house.catalog.objects.values() if not is_shared(o)]
    assert [o.partition_ids for o in own] == [{1}]
    assert house.contents() == before
    assert house.contents(house.restarted()) == before


def _before_commit(house: House, act: Callable[[], Awaitable[None]]) -> None:
    """Do something when a round's objects are in the bucket, before its commit."""
    commit, done = house.changer.commit, False

    async def late(replacement: Replacement) -> list[StoredObject]:
        nonlocal done
        if not done:
            done = True
            await act()
        return await commit(replacement)

    house.changer.commit = late  # type: ignore[method-assign]


def _during_commit(house: House, act: Callable[[], None]) -> None:
    """Do something on the loop while a round's commit is in the index's thread."""
    run = house.committer.run

    async def while_running(work: Callable[[Index], Any]) -> Any:
        result = await run(work)
        house.committer.run = run  # type: ignore[method-assign]
        act()
        return result

    house.committer.run = while_running  # type: ignore[method-assign]


async def test_what_is_truncated_during_a_round_does_not_come_back(
    new_house: NewHouse,
) -> None:
    house = await new_house()
    await fill(house)
    before = house.contents()

    async def truncate() -> None:
        await house.truncate(1, 2)
        await house.truncate(2, 12)

    _before_commit(house, truncate)
    await house.merger.run_due()

    found = house.contents()
    assert found == {1: before[1][2:], 2: [], 3: before[3]}
    assert house.contents(house.restarted()) == found
    assert house.catalog.partition(2).extents == []
    assert house.restarted().partition(2).end == 12
    assert house.catalog.partition(1).below_bytes == house.below_bytes(1) == 4_000
    assert house.restarted().partition(1).below_bytes == 4_000


async def test_what_is_deleted_during_a_round_does_not_come_back(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house)
    before = house.contents()

    async def delete() -> None:
        await house.delete(1)
        await house.delete(3)

    _before_commit(house, delete)
    await house.merger.run_due()

    assert house.contents() == {2: before[2]}
    assert house.contents(house.restarted()) == {2: before[2]}
    assert [o.partition_ids for o in house.catalog.objects.values()] == [{2}]


async def test_what_is_truncated_during_the_commit_does_not_come_back(
    new_house: NewHouse,
) -> None:
    house = await new_house()
    await fill(house)
    before = house.contents()

    def act() -> None:
        house.catalog.partition(1).start = 3
        house.catalog.partition(3).is_deleted = True
        house.catalog.partition(3).extents = []

    async def arrange() -> None:
        _during_commit(house, act)

    _before_commit(house, arrange)
    await house.merger.run_due()

    found = {1: before[1][3:], 2: before[2]}
    assert house.contents() == found
    assert house.contents(house.restarted()) == found
    assert house.restarted().partition(1).below_bytes == house.below_bytes(1) == 6_000


async def test_appends_during_a_round_stay(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house)
    _before_commit(house, lambda: fill(house, 1))

    await house.merger.run_due()

    assert [len(batches) for batches in house.contents().values()] == [5, 10, 5]
    assert house.contents(house.restarted()) == house.contents()


async def test_a_damaged_object_is_left_alone_and_others_go_on(
    new_house: NewHouse, server: S3Server
) -> None:
    house = await new_house()
    await fill(house, 10)
    bad = house.catalog.objects[3]
    key = object_key(house.config.prefix, bad.number, bad.epoch)
    data = bytearray(house.bucket.get(key, 0, bad.size_bytes))
    data[200] ^= 1
    client = server.client()
    client.put_object(Bucket=server.bucket, Key=key, Body=bytes(data))
    client.close()

    with capture_logs() as logs:
        await house.merger.run_due()
        await house.merger.run_due()

    left = sorted(o.number for o in house.catalog.objects.values() if o.kind == KIND_LOG)
    assert left == [1, 2, 3]
    assert house.merger.damaged_count == 1
    (said,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert said["key"] == key
    assert "advice" in said


async def test_a_round_that_fails_comes_again(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house)
    before = house.contents()
    put, failed = house.changer.put_object, []

    def fail(made: MergedObject) -> MergedObject:
        put(made)
        failed.append(made.stored.number)
        raise StorageUnavailable("away")

    house.changer.put_object = fail  # type: ignore[method-assign]
    await house.merger.run_due()
    assert (house.merger.failures, house.contents()) == (1, before)
    house.changer.put_object = put  # type: ignore[method-assign]
    await house.merger.run_due()
    assert house.merger.rounds == 0  # Not at once.

    house.clock.advance(1_000)
    await house.merger.run_due()

    assert house.merger.rounds == 1
    assert house.contents(house.restarted()) == before
    assert not house.committer.numbers_kept & set(failed)


def _count_waits(house: House) -> list[float | None]:
    """Have uploads be busy; return what will have an item for each look, none of which waits."""
    house.is_uploading = True
    waits: list[float | None] = []
    wait = threading.Event.wait

    def counted(timeout: float | None = None) -> bool:
        waits.append(timeout)
        return wait(house.merger.pace.stop, 0)

    house.merger.pace.stop.wait = counted  # type: ignore[method-assign]
    return waits


async def test_uploads_go_first_for_a_while(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house)
    waits = _count_waits(house)

    await house.merger.run_due()

    assert house.merger.rounds == 1
    assert len(waits) >= LOOKS_MAX


async def test_reading_gives_way_for_every_piece(new_house: NewHouse) -> None:
    house = await new_house()
    await fill(house, 4, large=3 * PACE_BYTES)
    waits = _count_waits(house)

    for stored in house.catalog.objects.values():
        await house.changer.in_thread(house.changer.read_object, stored, house.merger.pace)

    assert len(waits) == 4 * 4 * LOOKS_MAX  # a little more than three pieces each


async def test_it_works_by_itself_and_stops_at_once(new_house: NewHouse) -> None:
    house = await new_house()
    house.merger.start()
    await fill(house)

    async def merged() -> None:
        while not house.merger.rounds:  # noqa: ASYNC110  # Merging has no event.
            await asyncio.sleep(0)

    await asyncio.wait_for(merged(), 60)
    house.is_uploading = True
    await fill(house)
    await asyncio.wait_for(house.merger.stop(), 60)
    assert house.contents(house.restarted()) == house.contents()
