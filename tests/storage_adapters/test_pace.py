"""Copying in the background waits: for its rate, and while appends wait for the disk."""

import threading

import pytest

from storage_adapters.segment_log.settled_output import (
    LOOK_S,
    LOOKS_MAX,
    QUEUED_BYTES_HIGH,
    Pace,
    Stopped,
)

UNBOUNDED = 1 << 40


class Waits(threading.Event):
    """Notes how long somebody would have waited; each wait takes some bytes off a queue."""

    def __init__(self, queued_bytes: int = 0, freed_bytes: int = 0) -> None:
        super().__init__()
        self.waited_s: list[float] = []
        self.queued_bytes = queued_bytes
        self._freed_bytes = freed_bytes

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waited_s.append(timeout)
        self.queued_bytes -= self._freed_bytes
        return self.is_set()


def pace_of(waits: Waits, bytes_per_s_max: int = UNBOUNDED) -> Pace:
    pace = Pace(bytes_per_s_max, lambda: waits.queued_bytes)
    pace.stop = waits
    return pace


def test_a_piece_takes_its_time() -> None:
    waits = Waits()
    pace_of(waits, 1_000_000).spend(500_000)
    assert waits.waited_s == [pytest.approx(0.504, rel=0.01)]


def test_appends_that_wait_come_first() -> None:
    waits = Waits(QUEUED_BYTES_HIGH + 3, freed_bytes=1)
    pace_of(waits).spend(1)
    assert waits.waited_s == [LOOK_S] * 3


@pytest.mark.parametrize(
    ("factor", "looks"), [(1.0, LOOKS_MAX), (2.0, LOOKS_MAX // 4), (9.0, 0)]
)
def test_what_falls_behind_gives_way_less(factor: float, looks: int) -> None:
    waits = Waits(QUEUED_BYTES_HIGH * 9)
    pace = pace_of(waits)
    pace.factor = factor
    pace.spend(1)
    assert waits.waited_s == [LOOK_S] * looks


def test_a_short_queue_holds_nobody_up() -> None:
    waits = Waits(QUEUED_BYTES_HIGH)
    pace_of(waits).spend(1)
    assert waits.waited_s == []


def test_a_stop_ends_giving_way() -> None:
    waits = Waits(QUEUED_BYTES_HIGH * 9)
    pace = pace_of(waits)
    waits.set()
    with pytest.raises(Stopped):
        pace.spend(1)
