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
from tests.storage_adapters.s3.merging_setup import MergingSetup, NewSetup, fill
from tests.support.s3_servers import S3Server


async def test_small_objects_become_few(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    before = setup.contents()

    await setup.merger.run_due()

    own, shared = sorted(setup.catalog.objects.values(), key=is_shared)
    assert own.partition_ids == {1}
    assert shared.partition_ids == {2, 3}
    assert (shared.first_sequence, shared.next_sequence) == (1, 13)
    assert shared.number < own.number  # Without a commit it would be swept before the other.
    assert setup.contents() == before
    assert setup.contents(setup.restarted()) == before
    assert setup.restarted().objects == setup.catalog.objects
    assert setup.forgotten == [1, 2, 3, 4]
    assert (setup.merger.rounds, setup.merger.merged_objects) == (1, 4)
    # The inputs are there still, for those who read them.
    assert len(setup.keys()) == 6


async def test_inputs_that_are_in_memory_are_not_read_again(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    first, *rest = setup.catalog.objects.values()
    for stored in rest:
        key = object_key(setup.config.prefix, stored.number, stored.epoch)
        setup.tail[stored.number] = setup.bucket.get(key, 0, stored.size_bytes)
    before = setup.contents()
    received_bytes = setup.bucket.statistics.received_bytes

    await setup.merger.run_due()

    assert setup.bucket.statistics.received_bytes == received_bytes + first.size_bytes
    assert setup.contents() == before
    assert setup.contents(setup.restarted()) == before


async def test_what_may_be_scanned_is_not_merged(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    setup.merger._released = 4
    await setup.merger.run_due()
    assert {o.kind for o in setup.catalog.objects.values()} == {KIND_LOG}


async def test_shared_objects_are_merged_again(new_setup: NewSetup) -> None:
    setup = await new_setup(partition_object_bytes_min=1_000_000)
    await fill(setup, 16)
    before = setup.contents()
    await setup.merger.run_due()
    assert [o.first_sequence for o in setup.catalog.objects.values()] == [1]
    assert setup.contents(setup.restarted()) == before


async def test_small_own_objects_are_merged_again(new_setup: NewSetup) -> None:
    setup = await new_setup(partition_object_bytes_min=20_000)
    for _ in range(4):
        await fill(setup, 4, large=6_000)
        await setup.merger.run_due()
    before = setup.contents()
    own = [o for o in setup.catalog.objects.values() if not is_shared(o)]
    assert len(own) == 4
    setup.merger._config = setup.config.model_copy(
        update={"partition_object_bytes_min": 30_000}
    )
    setup.merger.touch(1)

    await setup.merger.run_due()

    own = [o for o in setup.catalog.objects.values() if not is_shared(o)]
    assert [o.partition_ids for o in own] == [{1}]
    assert setup.contents() == before
    assert setup.contents(setup.restarted()) == before


def _before_commit(setup: MergingSetup, act: Callable[[], Awaitable[None]]) -> None:
    """Do something when a round's objects are in the bucket, before its commit."""
    commit, done = setup.changer.commit, False

    async def late(replacement: Replacement) -> list[StoredObject]:
        nonlocal done
        if not done:
            done = True
            await act()
        return await commit(replacement)

    setup.changer.commit = late  # type: ignore[method-assign]


def _during_commit(setup: MergingSetup, act: Callable[[], None]) -> None:
    """Do something on the loop while a round's commit is in the index's thread."""
    run = setup.committer.run

    async def while_running(work: Callable[[Index], Any]) -> Any:
        result = await run(work)
        setup.committer.run = run  # type: ignore[method-assign]
        act()
        return result

    setup.committer.run = while_running  # type: ignore[method-assign]


async def test_what_is_truncated_during_a_round_does_not_come_back(
    new_setup: NewSetup,
) -> None:
    setup = await new_setup()
    await fill(setup)
    before = setup.contents()

    async def truncate() -> None:
        await setup.truncate(1, 2)
        await setup.truncate(2, 12)

    _before_commit(setup, truncate)
    await setup.merger.run_due()

    found = setup.contents()
    assert found == {1: before[1][2:], 2: [], 3: before[3]}
    assert setup.contents(setup.restarted()) == found
    assert setup.catalog.partition(2).extents == []
    assert setup.restarted().partition(2).end == 12
    assert setup.catalog.partition(1).below_bytes == setup.below_bytes(1) == 4_000
    assert setup.restarted().partition(1).below_bytes == 4_000


async def test_what_is_deleted_during_a_round_does_not_come_back(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    before = setup.contents()

    async def delete() -> None:
        await setup.delete(1)
        await setup.delete(3)

    _before_commit(setup, delete)
    await setup.merger.run_due()

    assert setup.contents() == {2: before[2]}
    assert setup.contents(setup.restarted()) == {2: before[2]}
    assert [o.partition_ids for o in setup.catalog.objects.values()] == [{2}]


async def test_what_is_truncated_during_the_commit_does_not_come_back(
    new_setup: NewSetup,
) -> None:
    setup = await new_setup()
    await fill(setup)
    before = setup.contents()

    def act() -> None:
        setup.catalog.partition(1).start = 3
        setup.catalog.partition(3).is_deleted = True
        setup.catalog.partition(3).extents = []

    async def arrange() -> None:
        _during_commit(setup, act)

    _before_commit(setup, arrange)
    await setup.merger.run_due()

    found = {1: before[1][3:], 2: before[2]}
    assert setup.contents() == found
    assert setup.contents(setup.restarted()) == found
    assert setup.restarted().partition(1).below_bytes == setup.below_bytes(1) == 6_000


async def test_appends_during_a_round_stay(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    _before_commit(setup, lambda: fill(setup, 1))

    await setup.merger.run_due()

    assert [len(batches) for batches in setup.contents().values()] == [5, 10, 5]
    assert setup.contents(setup.restarted()) == setup.contents()


async def test_a_damaged_object_is_left_alone_and_others_go_on(
    new_setup: NewSetup, server: S3Server
) -> None:
    setup = await new_setup()
    await fill(setup, 10)
    bad = setup.catalog.objects[3]
    key = object_key(setup.config.prefix, bad.number, bad.epoch)
    data = bytearray(setup.bucket.get(key, 0, bad.size_bytes))
    data[200] ^= 1
    client = server.client()
    client.put_object(Bucket=server.bucket, Key=key, Body=bytes(data))
    client.close()

    with capture_logs() as logs:
        await setup.merger.run_due()
        await setup.merger.run_due()

    left = sorted(o.number for o in setup.catalog.objects.values() if o.kind == KIND_LOG)
    assert left == [1, 2, 3]
    assert setup.merger.damaged_count == 1
    (said,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert said["key"] == key
    assert "advice" in said


async def test_a_round_that_fails_comes_again(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    before = setup.contents()
    put, failed = setup.changer.put_object, []

    def fail(made: MergedObject) -> MergedObject:
        put(made)
        failed.append(made.stored.number)
        raise StorageUnavailable("away")

    setup.changer.put_object = fail  # type: ignore[method-assign]
    await setup.merger.run_due()
    assert (setup.merger.failures, setup.contents()) == (1, before)
    setup.changer.put_object = put  # type: ignore[method-assign]
    await setup.merger.run_due()
    assert setup.merger.rounds == 0  # Not at once.

    setup.clock.advance(1_000)
    await setup.merger.run_due()

    assert setup.merger.rounds == 1
    assert setup.contents(setup.restarted()) == before
    assert not setup.committer.numbers_kept & set(failed)


def _count_waits(setup: MergingSetup) -> list[float | None]:
    """Keep uploads busy; return a list that gets an item for each check, none of which waits."""
    setup.is_uploading = True
    waits: list[float | None] = []
    wait = threading.Event.wait

    def counted(timeout: float | None = None) -> bool:
        waits.append(timeout)
        return wait(setup.merger.pace.stop, 0)

    setup.merger.pace.stop.wait = counted  # type: ignore[method-assign]
    return waits


async def test_uploads_go_first_for_a_while(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    waits = _count_waits(setup)

    await setup.merger.run_due()

    assert setup.merger.rounds == 1
    assert len(waits) >= LOOKS_MAX


async def test_reading_gives_way_for_every_piece(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup, 4, large=3 * PACE_BYTES)
    waits = _count_waits(setup)

    for stored in setup.catalog.objects.values():
        await setup.changer.in_thread(setup.changer.read_object, stored, setup.merger.pace)

    assert len(waits) == 4 * 4 * LOOKS_MAX  # a little more than three pieces each


async def test_it_works_by_itself_and_stops_at_once(new_setup: NewSetup) -> None:
    setup = await new_setup()
    setup.merger.start()
    await fill(setup)

    async def merged() -> None:
        while not setup.merger.rounds:  # noqa: ASYNC110  # Merging has no event.
            await asyncio.sleep(0)

    await asyncio.wait_for(merged(), 60)
    setup.is_uploading = True
    await fill(setup)
    await asyncio.wait_for(setup.merger.stop(), 60)
    assert setup.contents(setup.restarted()) == setup.contents()
