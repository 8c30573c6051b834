"""Clock steps: unix time never goes back in a process, and nothing that waits hangs on it."""

import time
from pathlib import Path

import pytest

from gateway.clock import STEPS_MAX, ManualClock, SystemClock
from gateway.groups.model import GroupState
from gateway.writer import Write
from tests.gateway.groups.clients import NAME, Clients
from tests.gateway.kernel_in_memory import running
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


def test_wall_time_is_what_the_machine_says_now(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    now_ns = time.time_ns()
    times = iter([now_ns, now_ns - 3_600_000_000_000, now_ns - 3_600_000_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    highest, stepped_back, held = clock.unix_ms(), clock.wall_unix_ms(), clock.unix_ms()
    assert stepped_back == highest - 3_600_000
    assert held == highest


def test_durations_do_not_see_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before = clock.monotonic_ms()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert 0 <= clock.monotonic_ms() - before < 60_000


def test_a_manual_clock_steps_unix_time_alone() -> None:
    clock = ManualClock(unix_ms=1_000)
    clock.advance(5)
    clock.step_unix(700)
    assert (clock.unix_ms(), clock.monotonic_ms()) == (1_705, 5)
    clock.step_unix(-700)
    clock.advance(5)
    assert (clock.unix_ms(), clock.monotonic_ms()) == (1_705, 10)
    assert clock.wall_unix_ms() == 1_010
    clock.advance(696)
    assert (clock.unix_ms(), clock.monotonic_ms()) == (1_706, 706)


HOUR_MS = 3_600_000
START_UNIX_MS = 1_700_000_000_000


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 365 * 24 * HOUR_MS])
def test_a_stored_deadline_is_reached_when_its_span_has_passed(step_ms: int) -> None:
    clock = ManualClock(START_UNIX_MS)
    stored: list[tuple[int, int, int]] = []  # when by steady time, deadline, when it was made

    def store() -> None:
        due = clock.steady_unix_ms() + 2 * HOUR_MS
        stored.append((due, clock.deadline_unix_ms(2 * HOUR_MS), clock.unix_ms()))

    store()
    for step in (step_ms, -step_ms, step_ms, step_ms):
        clock.advance(10_000)
        clock.step_unix(step)
        store()
        clock.advance(10_000)
        store()
        clock.advance(abs(step_ms) // 2)
        store()
    for due, deadline, stamped in stored:
        assert clock.steady_deadline(deadline, stamped) == due


def test_a_deadline_is_unix_time_for_others_to_read() -> None:
    clock = ManualClock(START_UNIX_MS)
    clock.unix_ms()
    clock.step_unix(HOUR_MS)
    assert clock.deadline_unix_ms(5) == START_UNIX_MS + HOUR_MS + 5


def test_who_goes_by_another_clock_is_not_moved_by_ours() -> None:
    """A producer's time is before our wrong step forwards, or after our step to the right one."""
    clock = ManualClock(START_UNIX_MS)
    clock.unix_ms()
    clock.advance(1_000)
    clock.step_unix(HOUR_MS)
    stamped = START_UNIX_MS + 1_500  # the real time: ours has passed over it
    assert clock.steady_deadline(stamped + 10_000, stamped) == stamped + 10_000


def test_what_is_less_than_a_step_moves_nothing() -> None:
    clock = ManualClock(START_UNIX_MS)
    clock.unix_ms()
    clock.step_unix(499)
    assert clock.steady_deadline(10, clock.unix_ms()) == 10


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_unix_time_of_a_while_ago_is_what_it_was_then(step_ms: int) -> None:
    clock = ManualClock(START_UNIX_MS)
    seen = [(clock.steady_unix_ms(), clock.unix_ms())]
    for _ in range(3):
        clock.step_unix(step_ms)
        clock.advance(2 * HOUR_MS)  # where it was held level, it runs again
        seen.append((clock.steady_unix_ms(), clock.unix_ms()))
        clock.advance(10_000)
        seen.append((clock.steady_unix_ms(), clock.unix_ms()))
    now = clock.steady_unix_ms()
    assert [clock.unix_ms_ago(now - steady) for steady, _ in seen] == [unix for _, unix in seen]


def test_unix_time_that_was_held_level_is_not_before_what_was_said_then() -> None:
    clock = ManualClock(START_UNIX_MS)
    clock.unix_ms()
    clock.advance(10_000)
    highest = clock.unix_ms()
    clock.step_unix(-HOUR_MS)
    clock.advance(3 * HOUR_MS)
    assert clock.unix_ms() > highest
    assert clock.unix_ms_ago(150 * 60_000) == highest  # half an hour into the hour of standing
    assert clock.unix_ms_ago(3 * HOUR_MS + 5_000) == START_UNIX_MS + 5_000


def test_steps_that_are_remembered_are_bounded() -> None:
    clock = ManualClock(START_UNIX_MS)
    for _ in range(STEPS_MAX + 10):
        clock.step_unix(HOUR_MS)
        clock.unix_ms()
    steps = clock._steps
    assert (len(steps._begins), len(steps._ends), len(steps._aheads)) == (
        STEPS_MAX, STEPS_MAX, STEPS_MAX + 1,
    )  # fmt: skip
    assert clock.steady_deadline(clock.unix_ms(), clock.unix_ms()) == START_UNIX_MS


def test_the_machines_clock_counts_on_through_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    wall_ns, real_ns = 0, time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + wall_ns)
    made = (clock.deadline_unix_ms(10_000), clock.unix_ms())
    before = clock.steady_deadline(*made)
    wall_ns = HOUR_MS * 1_000_000
    after_step = (clock.deadline_unix_ms(10_000), clock.unix_ms())
    wall_ns = 0
    held = (clock.deadline_unix_ms(10_000), clock.unix_ms())
    assert clock.steady_deadline(*made) == before
    assert after_step[0] - made[0] >= HOUR_MS
    for stored in (after_step, held):
        assert 0 <= clock.steady_deadline(*stored) - before < 60_000


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
