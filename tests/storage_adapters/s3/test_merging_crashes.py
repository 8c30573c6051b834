"""A node that dies at any step of a round: the next one has everything, and cleans up."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from gateway.clock import ManualClock
from gateway.model import parse_batch_header
from gateway.testing.storage import make_entry
from storage_adapters.s3.change import Change
from storage_adapters.s3.index import Index
from storage_adapters.s3.merged_object import MergedObject
from storage_adapters.s3.opening import catalog_of
from storage_adapters.s3.recovery import restore_index, survey_bucket
from storage_adapters.s3.state import KIND_SETTLED, Catalog
from tests.storage_adapters.s3.merging_setup import MergingSetup, NewSetup, fill

HOUR_MS = 3_600_000


class Died(BaseException):
    """The process is gone: nobody handles this."""


def _after_puts(count: int) -> Callable[[MergingSetup], None]:
    def arrange(setup: MergingSetup) -> None:
        put = setup.changer.put_object
        puts: list[int] = []

        def put_object(made: MergedObject) -> MergedObject:
            if len(puts) == count:
                raise Died
            puts.append(made.stored.number)
            return put(made)

        setup.changer.put_object = put_object  # type: ignore[method-assign]

    return arrange


def _before_commit(setup: MergingSetup) -> None:
    async def commit(change: Change) -> None:
        raise Died(change)

    setup.committer.commit = commit  # type: ignore[method-assign]


def _after_commit(setup: MergingSetup) -> None:
    really = setup.committer.commit

    async def commit(change: Change) -> None:
        await really(change)
        raise Died

    setup.committer.commit = commit  # type: ignore[method-assign]


_STEPS = {
    "nothing put": _after_puts(0),
    "an own object put": _after_puts(1),
    "all own objects put": _after_puts(2),
    "all put": _before_commit,
    "committed": _after_commit,
}


async def _round(setup: MergingSetup) -> None:
    await setup.merger.run_due()


async def _rewrite(setup: MergingSetup) -> None:
    await setup.rewriter.rewrite(2, 1 << 40, lambda _: None)


async def _tidy(setup: MergingSetup) -> None:
    await setup.merger.tidy()


async def _die(setup: MergingSetup, act: Callable[[MergingSetup], Awaitable[None]]) -> None:
    with pytest.raises(Died):
        await act(setup)


@pytest.mark.parametrize("step", _STEPS)
async def test_a_round_happens_or_it_does_not(new_setup: NewSetup, step: str) -> None:
    setup = await new_setup()
    await fill(setup, 3)
    await setup.append(make_entry((1, 3)), make_entry((4, 0), size_bytes=5_000))
    before = setup.contents()
    _STEPS[step](setup)
    await _die(setup, _round)

    after = await new_setup()

    assert after.contents() == before
    await _survives_a_lost_index(after)
    await _is_clean_in_the_end(after)
    after.merger.release_scans_before(after.next_sequence)
    await after.merger.run_due()
    assert len([o for o in after.catalog.objects.values() if o.kind == KIND_SETTLED]) == 3


async def test_two_rounds_without_a_commit_and_a_lost_index_lose_nothing(
    new_setup: NewSetup,
) -> None:
    """The second round is put in part, and its own object covers less than the first one's."""
    setup = await new_setup(merge_objects_min=2)
    await fill(setup, 2, large=5_000)
    scan = setup.next_sequence  # A slow reader of the next node stands here.
    await fill(setup, 1, large=5_000)
    before = setup.contents()
    _STEPS["all put"](setup)
    await _die(setup, _round)
    again = await new_setup(merge_objects_min=2)
    again.merger.release_scans_before(scan)
    _STEPS["an own object put"](again)
    await _die(again, _round)

    after = await new_setup()

    assert len(setup.keys()) == 3 + 2 + 1
    assert setup.contents(await _recovered(after)) == before
    await _is_clean_in_the_end(after)


@pytest.mark.parametrize("step", ["nothing put", "all put", "committed"])
async def test_a_rewrite_happens_or_it_does_not(new_setup: NewSetup, step: str) -> None:
    setup = await new_setup()
    await fill(setup)
    await setup.merger.run_due()
    before = setup.contents()
    _STEPS[step](setup)
    await _die(setup, _rewrite)

    after = await new_setup()

    assert after.contents() == ({**before, 2: []} if step == "committed" else before)
    assert after.catalog.partition(2).end == 12
    await _is_clean_in_the_end(after)


@pytest.mark.parametrize("step", ["nothing put", "all put", "committed"])
async def test_a_note_is_there_before_what_it_replaces_goes(
    new_setup: NewSetup, step: str
) -> None:
    setup = await new_setup()
    await fill(setup)
    await setup.merger.run_due()
    await setup.truncate(1, 4)
    _STEPS[step](setup)
    await _die(setup, _tidy)

    after = await new_setup()

    assert (after.catalog.partition(1).start, after.catalog.partition(1).end) == (4, 4)
    await _survives_a_lost_index(after)
    await _is_clean_in_the_end(after)
    await _survives_a_lost_index(after)


async def _survives_a_lost_index(setup: MergingSetup) -> None:
    """See that the bucket alone tells the same, as it is at this moment."""
    found = await _recovered(setup)
    # Of a log start that no footer has told, what is below comes back, and nothing else.
    starts = {s.partition_id: s.start for s in setup.catalog.partitions.values()}
    again = {
        i: [b for b in batches if parse_batch_header(b).last_offset >= starts[i]]
        for i, batches in setup.contents(found).items()
    }
    assert again == setup.contents()
    for state in setup.catalog.partitions.values():
        assert found.partition(state.partition_id).end == state.end


async def _recovered(setup: MergingSetup) -> Catalog:
    """Return what a node would know whose index was lost."""
    index = Index(f"{setup.url}.{uuid4().hex}", clock=ManualClock())
    index.open()
    try:
        restore_index(
            setup.config, setup.bucket, index, survey_bucket(setup.config, setup.bucket)
        )
        return catalog_of(index.load())
    finally:
        index.close()


async def _is_clean_in_the_end(setup: MergingSetup) -> None:
    """See that what was begun goes, and nothing else does."""
    await setup.append(make_entry((1, setup.catalog.partition(1).end)))
    before = setup.contents()
    setup.merger.is_halted = True  # Only sweeping: what counts stays as it is.
    for _ in range(3):
        setup.clock.advance(HOUR_MS + 1)
        await setup.sweeper.run_due()
    setup.merger.is_halted = False
    assert setup.keys() == sorted(setup.catalog.objects)
    assert setup.contents() == before
    assert setup.contents(setup.restarted()) == before
