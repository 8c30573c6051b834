"""A collection of survivors looks at few objects, however many a large request has made."""

import gc
from collections.abc import Iterator

import pytest

from gateway.garbage_collector import YOUNG_OBJECTS, enable_collector

LOOKED_AT_MAX = 5 * YOUNG_OBJECTS
MADE = 40 * YOUNG_OBJECTS


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_a_collection_of_survivors_is_bounded() -> None:
    looked_at: list[int] = []

    def note(phase: str, details: dict[str, int]) -> None:
        if phase == "start" and details["generation"] == 1:
            looked_at.append(len(gc.get_objects(0)) + len(gc.get_objects(1)))

    gc.collect()
    enable_collector()
    gc.callbacks.append(note)
    try:
        held = [[number] for number in range(MADE)]
    finally:
        gc.callbacks.remove(note)

    assert len(held) == MADE
    assert looked_at
    assert max(looked_at) <= LOOKED_AT_MAX
