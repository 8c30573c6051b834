"""Pages that are sorted on the node: as ``sorted`` does it, with turns for the event loop."""

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.paging import SLICE_ROWS, Page


@given(
    keys=st.lists(st.integers(0, 5), max_size=60),
    offset=st.integers(0, 30),
    limit=st.integers(1, 30),
    is_descending=st.booleans(),
)
def test_a_page_is_the_part_of_the_sorted_list(
    keys: list[int],
    offset: int,
    limit: int,
    is_descending: bool,  # noqa: FBT001 - drawn
) -> None:
    rows = list(enumerate(keys))
    page = Page(limit, offset, "key", is_descending, "")
    found = asyncio.run(page.cut_sorted(rows, lambda row: row[1]))
    whole = sorted(rows, key=lambda row: row[1], reverse=is_descending)
    assert found == whole[offset : offset + limit]


async def test_rows_of_several_slices_are_merged() -> None:
    rows = [(at * 7_919) % 3_500 for at in range(3_500)]
    page = Page(5, 3_000, "key", is_descending=False, contains="")
    assert await page.cut_sorted(rows, lambda row: row) == [3_000, 3_001, 3_002, 3_003, 3_004]


async def test_the_event_loop_has_its_turn_while_rows_are_sorted() -> None:
    looked_at = 0

    def key(row: int) -> int:
        nonlocal looked_at
        looked_at += 1
        return row

    page = Page(50, 0, "key", is_descending=True, contains="")
    sorting = asyncio.ensure_future(page.cut_sorted(range(100_000), key))
    turns = []
    while not sorting.done():
        await asyncio.sleep(0)
        turns.append(looked_at)
    assert max(after - before for before, after in pairwise(turns)) <= SLICE_ROWS
    assert sorting.result()[0] == 99_999
