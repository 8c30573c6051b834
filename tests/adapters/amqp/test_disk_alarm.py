"""Alarm of a full storage: when it is raised, when it ends, how often it tries."""

from collections.abc import AsyncIterator

import pytest

from adapters.amqp.disk_alarm import WAIT_MS_MAX, WAIT_MS_MIN, DiskAlarm
from gateway.clock import ManualClock
from gateway.errors import StorageFull, StorageUnavailable


class Disk:
    """Free room, as a test says."""

    def __init__(self) -> None:
        self.free_bytes = 1_000
        self.clock = ManualClock()
        self.alarm = DiskAlarm(self.clock, lambda: self.free_bytes)
        self.released: list[str] = []

    def fill(self) -> None:
        self.alarm.note(StorageFull("no space"))
        assert self.alarm.is_raised


@pytest.fixture
async def disk() -> AsyncIterator[Disk]:
    made = Disk()
    yield made
    made.alarm.close()


async def test_other_errors_raise_no_alarm(disk: Disk) -> None:
    disk.alarm.note(StorageUnavailable("stopped"))
    disk.alarm.note(None)
    assert not disk.alarm.is_raised


async def test_alarm_ends_when_room_has_grown_for_two_looks(disk: Disk) -> None:
    disk.fill()
    disk.alarm.hold(lambda: disk.released.append("a"))
    disk.alarm.hold(lambda: disk.released.append("b"))
    disk.alarm.look()
    disk.free_bytes += 1
    disk.alarm.look()
    assert disk.released == []
    disk.alarm.look()
    assert disk.released == ["a", "b"]


async def test_alarm_ends_after_its_wait_without_growth(disk: Disk) -> None:
    disk.fill()
    disk.clock.advance(WAIT_MS_MIN - 1)
    disk.alarm.look()
    assert disk.alarm.is_raised
    disk.clock.advance(1)
    disk.alarm.look()
    assert not disk.alarm.is_raised


async def test_wait_doubles_while_appends_are_still_refused(disk: Disk) -> None:
    waits = []
    for _ in range(8):
        disk.fill()
        waited = 0
        while disk.alarm.is_raised:
            disk.clock.advance(1_000)
            waited += 1_000
            disk.alarm.look()
        waits.append(waited)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, WAIT_MS_MAX, WAIT_MS_MAX]
    disk.clock.advance(WAIT_MS_MAX)
    disk.fill()
    disk.clock.advance(WAIT_MS_MIN)
    disk.alarm.look()
    assert not disk.alarm.is_raised


async def test_connection_that_has_gone_is_not_released(disk: Disk) -> None:
    release = disk.released.clear
    disk.fill()
    disk.alarm.hold(release)
    disk.alarm.unhold(release)
    assert disk.alarm.blocked_count == 0
