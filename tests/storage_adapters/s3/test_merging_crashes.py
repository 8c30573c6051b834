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
from storage_adapters.s3.state import KIND_SETTLED
from tests.storage_adapters.s3.merging_house import House, NewHouse, fill

HOUR_MS = 3_600_000


class Died(BaseException):
    """The process is gone: nobody handles this."""


def _after_puts(count: int) -> Callable[[House], None]:
    def arrange(house: House) -> None:
        put = house.changer.put_object
        puts: list[int] = []

        def put_object(made: MergedObject) -> MergedObject:
            if len(puts) == count:
                raise Died
            puts.append(made.stored.number)
            return put(made)

        house.changer.put_object = put_object  # type: ignore[method-assign]

    return arrange


def _before_commit(house: House) -> None:
    async def commit(change: Change) -> None:
        raise Died(change)

    house.committer.commit = commit  # type: ignore[method-assign]


def _after_commit(house: House) -> None:
    really = house.committer.commit

    async def commit(change: Change) -> None:
        await really(change)
        raise Died

    house.committer.commit = commit  # type: ignore[method-assign]


_STEPS = {
    "nothing put": _after_puts(0),
    "an own object put": _after_puts(1),
    "all own objects put": _after_puts(2),
    "all put": _before_commit,
    "committed": _after_commit,
}


async def _round(house: House) -> None:
    await house.merger.run_due()


async def _rewrite(house: House) -> None:
    await house.rewriter.rewrite(2, 1 << 40, lambda _: None)


async def _tidy(house: House) -> None:
    await house.merger.tidy()


async def _die(house: House, act: Callable[[House], Awaitable[None]]) -> None:
    with pytest.raises(Died):
        await act(house)


@pytest.mark.parametrize("step", _STEPS)
async def test_a_round_happens_or_it_does_not(new_house: NewHouse, step: str) -> None:
    house = await new_house()
    await fill(house, 3)
    await house.append(make_entry((1, 3)), make_entry((4, 0), size_bytes=5_000))
    before = house.contents()
    _STEPS[step](house)
    await _die(house, _round)

    after = await new_house()

    assert after.contents() == before
    await _survives_a_lost_index(after)
    await _is_clean_in_the_end(after)
    after.merger.release_scans_before(after.next_sequence)
    await after.merger.run_due()
    assert len([o for o in after.catalog.objects.values() if o.kind == KIND_SETTLED]) == 3


@pytest.mark.parametrize("step", ["nothing put", "all put", "committed"])
async def test_a_rewrite_happens_or_it_does_not(new_house: NewHouse, step: str) -> None:
    house = await new_house()
    await fill(house)
    await house.merger.run_due()
    before = house.contents()
    _STEPS[step](house)
    await _die(house, _rewrite)

    after = await new_house()

    assert after.contents() == ({**before, 2: []} if step == "committed" else before)
    assert after.catalog.partition(2).end == 12
    await _is_clean_in_the_end(after)


@pytest.mark.parametrize("step", ["nothing put", "all put", "committed"])
async def test_a_note_is_there_before_what_it_replaces_goes(
    new_house: NewHouse, step: str
) -> None:
    house = await new_house()
    await fill(house)
    await house.merger.run_due()
    await house.truncate(1, 4)
    _STEPS[step](house)
    await _die(house, _tidy)

    after = await new_house()

    assert (after.catalog.partition(1).start, after.catalog.partition(1).end) == (4, 4)
    await _survives_a_lost_index(after)
    await _is_clean_in_the_end(after)
    await _survives_a_lost_index(after)


async def _survives_a_lost_index(house: House) -> None:
    """See that the bucket alone tells the same, as it is at this moment."""
    index = Index(f"{house.url}.{uuid4().hex}", clock=ManualClock())
    index.open()
    restore_index(house.config, house.bucket, index, survey_bucket(house.config, house.bucket))
    found = catalog_of(index.load())
    index.close()
    # Of a log start that no footer has told, what is below comes back, and nothing else.
    starts = {s.partition_id: s.start for s in house.catalog.partitions.values()}
    again = {
        i: [b for b in batches if parse_batch_header(b).last_offset >= starts[i]]
        for i, batches in house.contents(found).items()
    }
    assert again == house.contents()
    for state in house.catalog.partitions.values():
        assert found.partition(state.partition_id).end == state.end


async def _is_clean_in_the_end(house: House) -> None:
    """See that what was begun goes, and nothing else does."""
    await house.append(make_entry((1, house.catalog.partition(1).end)))
    before = house.contents()
    house.merger.is_halted = True  # Only sweeping: what counts stays as it is.
    for _ in range(3):
        house.clock.advance(HOUR_MS + 1)
        await house.sweeper.run_due()
    house.merger.is_halted = False
    assert house.keys() == sorted(house.catalog.objects)
    assert house.contents() == before
    assert house.contents(house.restarted()) == before
