"""Freed memory is given back once after work, when it has become quiet."""

import gc
from collections.abc import Iterator

import pytest

from gateway.upkeep.idle_collection import LOOK_EVERY_S, IdleCollection

BUSY_S = LOOK_EVERY_S / 2
QUIET_S = LOOK_EVERY_S / 100


class Processor:
    """A clock of processor time that is moved by hand."""

    def __init__(self) -> None:
        self.used_s = 100.0

    def __call__(self) -> float:
        return self.used_s


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generations that were collected."""
    seen: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "stop":
            seen.append(about["generation"])

    gc.disable()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.enable()


def test_memory_is_given_back_once_when_it_has_become_quiet(collections: list[int]) -> None:
    processor = Processor()
    memory = IdleCollection(processor)
    seen: list[list[int]] = []
    for used_s in (BUSY_S, BUSY_S, QUIET_S, QUIET_S, BUSY_S, QUIET_S):
        processor.used_s += used_s
        memory.look()
        seen.append(collections.copy())

    assert seen == [[], [], [2], [2], [2], [2, 2]]
    assert memory.times == 2


def test_a_node_that_has_not_worked_has_nothing_to_give(collections: list[int]) -> None:
    processor = Processor()
    memory = IdleCollection(processor)
    for _ in range(10):
        processor.used_s += QUIET_S
        memory.look()

    assert (memory.times, collections) == (0, [])


def test_a_node_with_much_in_memory_does_not_look_at_it_all(
    collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upkeep.idle_collection.BLOCKS_MAX", -(1 << 40))
    processor = Processor()
    memory = IdleCollection(processor)
    for used_s in (BUSY_S, QUIET_S):
        processor.used_s += used_s
        memory.look()

    assert (memory.times, collections) == (1, [])
