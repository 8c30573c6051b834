"""A lost index comes back from the bucket as it was."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.clock import ManualClock
from gateway.errors import StorageUnavailable
from gateway.model import parse_batch_header
from gateway.testing.storage import make_entry
from storage_adapters.s3.index import Index
from storage_adapters.s3.merge_plan import is_shared
from storage_adapters.s3.opening import MARKER, catalog_of, read_marker
from storage_adapters.s3.recovery import batches_of, restore_index, survey_bucket
from storage_adapters.s3.state import Catalog, object_key
from tests.storage_adapters.s3.merge_catalog import DATA_UUID, identity_of
from tests.storage_adapters.s3.merging_setup import MergingSetup, NewSetup, fill
from tests.support.s3_servers import S3Server


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """Return an index in an empty database."""
    made = Index(f"sqlite:///{tmp_path}/new.sqlite", clock=ManualClock(unix_ms=2_000_000))
    made.open()
    yield made
    made.close()


def _recover(setup: MergingSetup, index: Index) -> Catalog:
    survey = survey_bucket(setup.config, setup.bucket)
    restore_index(setup.config, setup.bucket, index, survey)
    return catalog_of(index.load())


def _state(catalog: Catalog) -> dict[int, tuple[object, ...]]:
    return {
        s.partition_id: (s.is_deleted,)
        if s.is_deleted
        else (s.start, s.end, s.below_bytes, s.extents)
        for s in catalog.partitions.values()
        if s.end or s.is_deleted
    }


async def test_the_index_is_as_it_was(new_setup: NewSetup, index: Index) -> None:
    setup = await new_setup()
    await fill(setup, 5)
    await setup.merger.run_due()
    await fill(setup, 2)
    await setup.truncate(1, 2)
    await setup.append(make_entry((2, 21)), make_entry((5, 0), epoch=3), told=[1])
    await setup.append(make_entry((5, 1), epoch=4), make_entry((5, 2), epoch=4))
    setup.catalog.partition(1).below_bytes = setup.below_bytes(1)
    await setup.delete(3)
    await setup.append(make_entry((2, 22)), told=[3])

    found = _recover(setup, index)

    assert found.objects == {
        stored.number: stored._replace(
            partition_ids=stored.partition_ids - {3}  # Deleted: it does not count.
        )
        for stored in setup.catalog.objects.values()
    }
    assert _state(found) == _state(setup.catalog)
    assert setup.contents(found) == setup.contents()
    assert index.data_uuid() == DATA_UUID
    for number in found.objects:
        assert index.rows(number) == setup.index.rows(number)
    ownership = index.take_over(1, reserve=1)
    assert ownership.next_sequence == setup.next_sequence
    assert ownership.reserved[0] > max(found.objects)
    assert ownership.epoch > setup.committer.epoch


async def test_compacted_partitions_come_back_with_their_holes(
    new_setup: NewSetup, index: Index
) -> None:
    setup = await new_setup()
    await fill(setup)
    await setup.merger.run_due()
    for partition_id in (1, 2):
        await setup.rewriter.rewrite(
            partition_id,
            1 << 40,
            lambda batch: batch if parse_batch_header(batch).base_offset % 2 else None,
        )

    found = _recover(setup, index)

    assert _state(found) == _state(setup.catalog)
    assert setup.contents(found) == setup.contents()


async def test_what_does_not_count_is_dead_and_goes_in_its_time(
    new_setup: NewSetup, index: Index
) -> None:
    setup = await new_setup()
    await fill(setup)
    inputs = sorted(setup.catalog.objects)
    await setup.merger.run_due()

    found = _recover(setup, index)

    assert sorted(found.objects) == sorted(setup.catalog.objects)
    dead = index.dead(before_unix_ms=1 << 60, limit=100)
    assert [number for number, _ in dead] == inputs


async def test_what_was_put_and_not_committed_behind_a_gap_is_left_out(
    new_setup: NewSetup, index: Index
) -> None:
    setup = await new_setup()
    await fill(setup, 2)
    before = setup.contents()
    setup.next_sequence += 5  # An object before it was never put.
    lost = await setup.put([make_entry((1, 2)), make_entry((9, 0))])

    survey = survey_bucket(setup.config, setup.bucket)
    assert [one.number for one in survey.decision.unproven] == [lost.stored.number]
    restore_index(setup.config, setup.bucket, index, survey)

    assert setup.contents(catalog_of(index.load())) == before


async def test_identities_are_told(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup)
    await setup.merger.run_due()
    await setup.delete(2)
    await setup.append(make_entry((7, 0)), told=[2])

    survey = survey_bucket(setup.config, setup.bucket)

    assert survey.identities == [identity_of(i) for i in (1, 3, 7)]
    assert survey.data_uuid == DATA_UUID


async def test_the_marker_is_made_again(new_setup: NewSetup, index: Index) -> None:
    setup = await new_setup()
    await fill(setup, 1)
    assert read_marker(setup.config, setup.bucket) is None
    _recover(setup, index)
    assert read_marker(setup.config, setup.bucket) == DATA_UUID
    assert setup.bucket.head(f"{setup.config.prefix}{MARKER}") is not None


async def test_a_damaged_object_is_named_and_others_count(
    new_setup: NewSetup, index: Index, server: S3Server
) -> None:
    setup = await new_setup()
    await fill(setup, 3)
    key = object_key(setup.config.prefix, 2, 1)
    stored = setup.catalog.objects[2]
    data = bytearray(setup.bucket.get(key, 0, stored.size_bytes))
    data[-200] ^= 1
    with closing(server.client()) as client:
        client.put_object(Bucket=server.bucket, Key=key, Body=bytes(data))

    survey = survey_bucket(setup.config, setup.bucket)
    restore_index(setup.config, setup.bucket, index, survey)

    assert [damaged.key for damaged in survey.damaged] == [key]
    assert sorted(index_object.number for index_object, _ in index.load().objects) == [1, 3]
    missing = [(m.partition_id, m.first, m.end) for m in survey.decision.missing]
    assert missing == [(1, 1, 2), (2, 3, 6), (3, 1, 2)]


async def test_offsets_that_would_be_lost_are_an_error(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup, 4)
    first, *_, last = sorted(setup.catalog.objects)
    await setup.merger.run_due()
    own = [o.number for o in setup.catalog.objects.values() if not is_shared(o)]
    own_keys, keys = [
        [object_key(setup.config.prefix, number, 1) for number in numbers]
        for numbers in (own, range(first, last + 1))
    ]
    setup.bucket.delete([*own_keys, keys[0]])

    with pytest.raises(
        StorageUnavailable, match="offsets 1 to 1 of partition 1 are in"
    ) as error:
        survey_bucket(setup.config, setup.bucket)

    assert "So it is with 2 more objects." in str(error.value)
    setup.bucket.delete(keys)
    assert survey_bucket(setup.config, setup.bucket).decision.uncovered == []


async def test_what_was_never_committed_goes_before_what_shows_it(
    new_setup: NewSetup, index: Index
) -> None:
    setup = await new_setup()
    await fill(setup, 1)
    stale = (await setup.put([make_entry((1, 1))])).stored.number
    later = await new_setup()
    await fill(later, 4)
    later.merger.release_scans_before(later.next_sequence)
    await later.merger.run_due()
    _recover(later, index)

    before = index.dead(before_unix_ms=1 << 60, limit=100)
    epoch = index.take_over(1, reserve=0).epoch
    index.sweep_pending(epoch, before_unix_ms=1 << 60, keep=frozenset())
    after = index.dead(before_unix_ms=1 << 60, limit=100)

    assert [number for number, _ in before] == [1]
    assert [number for number, _ in after] == [1, stale]
    index.forget([1, stale])
    assert len(index.dead(before_unix_ms=1 << 60, limit=100)) == 4


async def test_strangers_are_left_alone(new_setup: NewSetup, server: S3Server) -> None:
    setup = await new_setup()
    await fill(setup, 1)
    with closing(server.client()) as client:
        for name in ("objects/readme", "objects/0000000000000009-1.seg.bak", "x"):
            key = f"{setup.config.prefix}{name}"
            client.put_object(Bucket=server.bucket, Key=key, Body=b"x")
    survey = survey_bucket(setup.config, setup.bucket)
    assert (len(survey.decision.live), survey.damaged) == (1, [])


async def test_objects_of_other_data_are_named(new_setup: NewSetup) -> None:
    setup = await new_setup()
    await fill(setup, 1)
    marker = b'{"format": 1, "data_uuid": "00000000-0000-0000-0000-000000000009"}'
    setup.bucket.put(f"{setup.config.prefix}{MARKER}", [marker])
    survey = survey_bucket(setup.config, setup.bucket)
    assert survey.decision.live == []
    assert "of the data 00000000-0000-0000-0000-000000000007" in survey.damaged[0].text


async def test_an_empty_bucket_has_nothing_to_recover(new_setup: NewSetup) -> None:
    setup = await new_setup()
    with pytest.raises(StorageUnavailable, match="holds no data"):
        survey_bucket(setup.config, setup.bucket)


async def test_large_footers_are_read_whole(new_setup: NewSetup, index: Index) -> None:
    setup = await new_setup()
    entries = [make_entry((1, n), size_bytes=70) for n in range(9_000)]
    await setup.append(*entries)
    assert _state(_recover(setup, index)) == _state(setup.catalog)


async def test_batches_of_a_partition_are_read_in_pieces(new_setup: NewSetup) -> None:
    setup = await new_setup(partition_object_bytes_min=100_000)
    await fill(setup)
    await setup.merger.run_due()
    assert any(map(is_shared, setup.catalog.objects.values()))
    await fill(setup, 2)
    survey = survey_bucket(setup.config, setup.bucket)
    gets = setup.bucket.statistics

    found = list(batches_of(setup.config, setup.bucket, survey, 1))

    assert found == setup.contents()[1]
    assert setup.bucket.statistics != gets


async def test_recovering_twice_changes_nothing(new_setup: NewSetup, index: Index) -> None:
    setup = await new_setup()
    await fill(setup, 5)
    await setup.merger.run_due()
    assert _state(_recover(setup, index)) == _state(_recover(setup, index))
