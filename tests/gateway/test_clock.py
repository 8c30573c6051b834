"""Clock steps: unix time never goes back in a process, and nothing that waits hangs on it."""

import time
from pathlib import Path

import pytest

from gateway.clock import ManualClock, SystemClock
from gateway.group_model import GroupState
from gateway.writer import Write
from tests.gateway.group_clients import NAME, Clients
from tests.gateway.house import running
from tests.gateway.test_broker import append
from tests.support.batches import sample_batch


def test_unix_time_stands_still_after_a_step_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    now_ns = time.time_ns()
    times = iter([now_ns, now_ns - 3_600_000_000_000, now_ns + 5_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    first, stepped_back, caught_up = clock.unix_ms(), clock.unix_ms(), clock.unix_ms()
    assert first == stepped_back == now_ns // 1_000_000
    assert caught_up == first + 5


def test_durations_do_not_see_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before = clock.monotonic_ms()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert 0 <= clock.monotonic_ms() - before < 60_000


def test_a_manual_clock_steps_unix_time_alone() -> None:
    clock = ManualClock(unix_ms=1_000)
    clock.advance(5)
    clock.step_unix(-700)
    assert (clock.unix_ms(), clock.monotonic_ms()) == (305, 5)


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
async def test_a_step_changes_no_offset_and_no_session(tmp_path: Path, step_ms: int) -> None:
    async with running(tmp_path) as house:
        clients = await Clients.start(house)
        member = await clients.member()
        partition = await house.partition("orders")
        for _ in range(2):
            write = house.broker.prepare(
                partition, sample_batch(count=3, timestamp_unix_ms=house.clock.unix_ms())
            )
            assert isinstance(write, Write)
            await append(house, write)
            house.clock.step_unix(step_ms)
            clients.advance(0)
        assert (partition.log_end_offset, partition.high_watermark) == (6, 6)
        assert clients.state() is GroupState.STABLE
        clients.groups.heartbeat(NAME, member.member_id, None, member.generation)
