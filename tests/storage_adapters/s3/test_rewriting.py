"""Compaction over merged objects; the contract suite has the rest."""

import asyncio

import pytest

from gateway.errors import StorageUnavailable
from gateway.model import Buffer, parse_batch_header
from gateway.testing.storage import make_entry
from storage_adapters.s3.merge_plan import is_shared
from storage_adapters.s3.state import StoredObject, object_key
from tests.storage_adapters.s3.merging_setup import MergingSetup, NewSetup, fill
from tests.support.s3_servers import S3Server

ALL = 1 << 40


def _odd(batch: Buffer) -> Buffer | None:
    return batch if parse_batch_header(batch).base_offset % 2 else None


def _own(setup: MergingSetup) -> list[StoredObject]:
    return [o for o in setup.catalog.objects.values() if not is_shared(o)]


async def _filled(new_setup: NewSetup, **settings: object) -> MergingSetup:
    setup = await new_setup(**settings)
    await fill(setup)
    await setup.merger.run_due()
    return setup


async def test_a_part_leaves_the_shared_object(new_setup: NewSetup) -> None:
    setup = await _filled(new_setup)
    before = setup.contents()

    done = await setup.rewriter.rewrite(2, ALL, _odd)

    after = setup.contents()
    assert after[2] == [b for b in before[2] if parse_batch_header(b).base_offset % 2]
    assert (after[1], after[3]) == (before[1], before[3])
    assert setup.contents(setup.restarted()) == after
    assert done.before_bytes - done.after_bytes == sum(map(len, before[2])) - sum(
        map(len, after[2])
    )
    assert done.upto_offset == 12
    (shared,) = [o for o in setup.catalog.objects.values() if is_shared(o)]
    assert shared.partition_ids == {3}
    assert setup.restarted().objects == setup.catalog.objects


async def test_an_own_object_is_replaced(new_setup: NewSetup) -> None:
    setup = await _filled(new_setup)
    (old,) = _own(setup)
    await setup.rewriter.rewrite(1, ALL, _odd)
    (new,) = _own(setup)
    assert old.number not in setup.catalog.objects
    assert new.partition_ids == {1}
    assert [number for number, _ in setup.index.dead(before_unix_ms=1 << 60, limit=9)][-1] == (
        old.number
    )


async def test_what_does_not_change_is_not_put_again(new_setup: NewSetup) -> None:
    setup = await _filled(new_setup)
    objects = dict(setup.catalog.objects)
    done = await setup.rewriter.rewrite(1, ALL, lambda batch: batch)
    assert done.before_bytes == done.after_bytes == 8_000
    assert setup.catalog.objects == objects


async def test_holes_at_both_ends_are_answered_for(new_setup: NewSetup) -> None:
    setup = await _filled(new_setup)
    await setup.rewriter.rewrite(
        1, ALL, lambda b: b if parse_batch_header(b).base_offset == 2 else None
    )
    (extent,) = setup.catalog.partition(1).extents
    assert (extent.first, extent.end, extent.row_count) == (0, 4, 1)
    await setup.rewriter.rewrite(1, ALL, lambda _: None)
    (extent,) = setup.catalog.partition(1).extents
    assert (extent.first, extent.end, extent.row_count, extent.epochs) == (0, 4, 0, ())
    assert setup.restarted().partition(1).end == 4


async def test_only_merged_objects_are_rewritten(new_setup: NewSetup) -> None:
    setup = await _filled(new_setup)
    await fill(setup, 1)
    assert setup.rewriter.settled_offset(1) == 4
    done = await setup.rewriter.rewrite(1, ALL, lambda _: None)
    assert done.upto_offset == 4
    assert len(setup.contents()[1]) == 1
    await setup.delete(1)
    assert setup.rewriter.settled_offset(1) == 0
    assert setup.rewriter.settled_offset(99) == 0


async def test_what_is_below_the_log_start_is_not_offered(new_setup: NewSetup) -> None:
    setup = await _filled(new_setup)
    await setup.truncate(2, 4)
    seen = []

    def keep(batch: Buffer) -> Buffer | None:
        seen.append(parse_batch_header(batch).base_offset)
        return batch

    await setup.rewriter.rewrite(2, ALL, keep)

    # The batch that the log starts within stays as it is, too.
    assert seen == [5, 6, 8, 9, 11]
    assert parse_batch_header(setup.contents()[2][0]).base_offset == 3
    assert setup.catalog.partition(2).below_bytes == 0
    assert setup.contents(setup.restarted()) == setup.contents()


async def test_a_partition_deleted_meanwhile_does_not_come_back(new_setup: NewSetup) -> None:
    setup = await _filled(new_setup)
    loop = asyncio.get_running_loop()

    def keep(batch: Buffer) -> Buffer | None:
        asyncio.run_coroutine_threadsafe(setup.delete(1), loop).result(60)
        return None if parse_batch_header(batch).base_offset else batch

    await setup.rewriter.rewrite(1, ALL, keep)

    assert 1 not in setup.contents()
    assert 1 not in setup.contents(setup.restarted())
    assert _own(setup) == []


async def test_a_damaged_object_stays_and_is_passed_the_third_time(
    new_setup: NewSetup, server: S3Server
) -> None:
    setup = await _filled(new_setup)
    (own,) = _own(setup)
    key = object_key(setup.config.prefix, own.number, own.epoch)
    data = bytearray(setup.bucket.get(key, 0, own.size_bytes))
    data[300] ^= 1
    client = server.client()
    client.put_object(Bucket=server.bucket, Key=key, Body=bytes(data))
    client.close()

    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="partition 1 is rewritten up to 0 only"):
            await setup.rewriter.rewrite(1, ALL, lambda _: None)
    done = await setup.rewriter.rewrite(1, ALL, lambda _: None)

    assert (done.upto_offset, done.before_bytes) == (4, done.after_bytes)
    assert setup.merger.damaged_count == 1


async def test_what_compaction_made_wrong_is_refused(new_setup: NewSetup) -> None:
    setup = await _filled(new_setup)
    before = setup.contents()
    with pytest.raises(StorageUnavailable, match="wrong CRC"):
        await setup.rewriter.rewrite(1, ALL, lambda batch: bytes(batch[:-1]) + b"\0")
    assert setup.contents() == before


async def test_a_stopped_storage_rewrites_nothing(new_setup: NewSetup) -> None:
    setup = await _filled(new_setup)
    await setup.merger.stop()
    with pytest.raises(StorageUnavailable, match="closed"):
        await setup.rewriter.rewrite(1, ALL, lambda _: None)


async def test_small_results_are_merged_again(new_setup: NewSetup) -> None:
    setup = await new_setup(partition_object_bytes_min=6_000)
    for _ in range(4):
        await fill(setup, 4)
        await setup.merger.run_due()
    assert len(_own(setup)) == 4
    await setup.append(make_entry((1, 16), size_bytes=2_000))

    await setup.rewriter.rewrite(1, ALL, _odd)
    await setup.merger.run_due()

    assert [o.partition_ids for o in _own(setup) if o.kind != 3] == [{1}]
    assert len(setup.contents()[1]) == 9
    assert setup.contents(setup.restarted()) == setup.contents()
