"""Compaction over merged objects; the contract suite has the rest."""

import asyncio

import pytest

from gateway.errors import StorageUnavailable
from gateway.model import Buffer, parse_batch_header
from gateway.testing.storage import make_entry
from storage_adapters.s3.merge_plan import is_shared
from storage_adapters.s3.state import StoredObject, object_key
from tests.storage_adapters.s3.merging_house import House, NewHouse, fill
from tests.support.s3_servers import S3Server

ALL = 1 << 40


def _odd(batch: Buffer) -> Buffer | None:
    return batch if parse_batch_header(batch).base_offset % 2 else None


def _own(house: House) -> list[StoredObject]:
    return [o for o in house.catalog.objects.values() if not is_shared(o)]


async def _filled(new_house: NewHouse, **settings: object) -> House:
    house = await new_house(**settings)
    await fill(house)
    await house.merger.run_due()
    return house


async def test_a_part_leaves_the_shared_object(new_house: NewHouse) -> None:
    house = await _filled(new_house)
    before = house.contents()

    done = await house.rewriter.rewrite(2, ALL, _odd)

    after = house.contents()
    assert after[2] == [b for b in before[2] if parse_batch_header(b).base_offset % 2]
    assert (after[1], after[3]) == (before[1], before[3])
    assert house.contents(house.restarted()) == after
    assert done.before_bytes - done.after_bytes == sum(map(len, before[2])) - sum(
        map(len, after[2])
    )
    assert done.upto_offset == 12
    (shared,) = [o for o in house.catalog.objects.values() if is_shared(o)]
    assert shared.partition_ids == {3}
    assert house.restarted().objects == house.catalog.objects


async def test_an_own_object_is_replaced(new_house: NewHouse) -> None:
    house = await _filled(new_house)
    (old,) = _own(house)
    await house.rewriter.rewrite(1, ALL, _odd)
    (new,) = _own(house)
    assert old.number not in house.catalog.objects
    assert new.partition_ids == {1}
    assert [number for number, _ in house.index.dead(before_unix_ms=1 << 60, limit=9)][-1] == (
        old.number
    )


async def test_what_does_not_change_is_not_put_again(new_house: NewHouse) -> None:
    house = await _filled(new_house)
    objects = dict(house.catalog.objects)
    done = await house.rewriter.rewrite(1, ALL, lambda batch: batch)
    assert done.before_bytes == done.after_bytes == 8_000
    assert house.catalog.objects == objects


async def test_holes_at_both_ends_are_answered_for(new_house: NewHouse) -> None:
    house = await _filled(new_house)
    await house.rewriter.rewrite(
        1, ALL, lambda b: b if parse_batch_header(b).base_offset == 2 else None
    )
    (extent,) = house.catalog.partition(1).extents
    assert (extent.first, extent.end, extent.row_count) == (0, 4, 1)
    await house.rewriter.rewrite(1, ALL, lambda _: None)
    (extent,) = house.catalog.partition(1).extents
    assert (extent.first, extent.end, extent.row_count, extent.epochs) == (0, 4, 0, ())
    assert house.restarted().partition(1).end == 4


async def test_only_merged_objects_are_rewritten(new_house: NewHouse) -> None:
    house = await _filled(new_house)
    await fill(house, 1)
    assert house.rewriter.settled_offset(1) == 4
    done = await house.rewriter.rewrite(1, ALL, lambda _: None)
    assert done.upto_offset == 4
    assert len(house.contents()[1]) == 1
    await house.delete(1)
    assert house.rewriter.settled_offset(1) == 0
    assert house.rewriter.settled_offset(99) == 0


async def test_what_is_below_the_log_start_is_not_offered(new_house: NewHouse) -> None:
    house = await _filled(new_house)
    await house.truncate(2, 4)
    seen = []

    def keep(batch: Buffer) -> Buffer | None:
        seen.append(parse_batch_header(batch).base_offset)
        return batch

    await house.rewriter.rewrite(2, ALL, keep)

    # The batch that the log starts within stays as it is, too.
    assert seen == [5, 6, 8, 9, 11]
    assert parse_batch_header(house.contents()[2][0]).base_offset == 3
    assert house.catalog.partition(2).below_bytes == 0
    assert house.contents(house.restarted()) == house.contents()


async def test_a_partition_deleted_meanwhile_does_not_come_back(new_house: NewHouse) -> None:
    house = await _filled(new_house)
    loop = asyncio.get_running_loop()

    def keep(batch: Buffer) -> Buffer | None:
        asyncio.run_coroutine_threadsafe(house.delete(1), loop).result(60)
        return None if parse_batch_header(batch).base_offset else batch

    await house.rewriter.rewrite(1, ALL, keep)

    assert 1 not in house.contents()
    assert 1 not in house.contents(house.restarted())
    assert _own(house) == []


async def test_a_damaged_object_stays_and_is_passed_the_third_time(
    new_house: NewHouse, server: S3Server
) -> None:
    house = await _filled(new_house)
    (own,) = _own(house)
    key = object_key(house.config.prefix, own.number, own.epoch)
    data = bytearray(house.bucket.get(key, 0, own.size_bytes))
    data[300] ^= 1
    client = server.client()
    client.put_object(Bucket=server.bucket, Key=key, Body=bytes(data))
    client.close()

    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="partition 1 is rewritten up to 0 only"):
            await house.rewriter.rewrite(1, ALL, lambda _: None)
    done = await house.rewriter.rewrite(1, ALL, lambda _: None)

    assert (done.upto_offset, done.before_bytes) == (4, done.after_bytes)
    assert house.merger.damaged_count == 1


async def test_what_compaction_made_wrong_is_refused(new_house: NewHouse) -> None:
    house = await _filled(new_house)
    before = house.contents()
    with pytest.raises(StorageUnavailable, match="wrong CRC"):
        await house.rewriter.rewrite(1, ALL, lambda batch: bytes(batch[:-1]) + b"\0")
    assert house.contents() == before


async def test_a_stopped_storage_rewrites_nothing(new_house: NewHouse) -> None:
    house = await _filled(new_house)
    await house.merger.stop()
    with pytest.raises(StorageUnavailable, match="closed"):
        await house.rewriter.rewrite(1, ALL, lambda _: None)


async def test_small_results_are_merged_again(new_house: NewHouse) -> None:
    house = await new_house(partition_object_bytes_min=6_000)
    for _ in range(4):
        await fill(house, 4)
        await house.merger.run_due()
    assert len(_own(house)) == 4
    await house.append(make_entry((1, 16), size_bytes=2_000))

    await house.rewriter.rewrite(1, ALL, _odd)
    await house.merger.run_due()

    assert [o.partition_ids for o in _own(house) if o.kind != 3] == [{1}]
    assert len(house.contents()[1]) == 9
    assert house.contents(house.restarted()) == house.contents()
