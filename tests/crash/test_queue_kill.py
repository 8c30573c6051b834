"""kill -9 of a node under sends, receives and settles of a queue with dead letters.

A message that was sent is acknowledged, or left in the queue, or in its dead letters: in one of
the three, never in none. What was acknowledged or has moved is handed out no more.
"""

import random
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from gateway.testing.process import Program
from tests.crash.kill_schedule import how_often
from tests.crash.queue_consumer import CREDIT
from tests.crash.queue_program import ROUND_COUNT
from tests.support.gateway import ROOT

ROUNDS = 5
LINES_BETWEEN_KILLS_MAX = 2_000
PROGRESS_S_MAX = 180
RECEIVED_AT_ONCE = 10
CONSUMED_AT_ONCE = 4 * CREDIT  # its credit is granted again before the journal has answered

pytestmark = pytest.mark.crash


@how_often(6, 100)
@pytest.mark.parametrize("flush", ["group", "never"])
def test_messages_are_in_one_place_after_kills(tmp_path: Path, flush: str, kills: int) -> None:
    chooser = random.Random(flush)
    lines: list[str] = []
    for _ in range(kills):
        program = _killed(
            tmp_path, flush, "load", chooser.randrange(1, LINES_BETWEEN_KILLS_MAX)
        )
        lines += program.lines
        assert program.error_lines == []
    _check(lines, _drained(tmp_path, flush))


@pytest.mark.parametrize("flush", ["group", "never"])
def test_attempts_count_across_a_kill(tmp_path: Path, flush: str) -> None:
    program = _program(tmp_path, flush, "hold")
    program.wait_for_line("held", within_s=PROGRESS_S_MAX)
    program.kill()
    lines = _drained(tmp_path, flush)
    assert sorted(_parse(lines)) == [("left", 2, 2), ("left", 3, 2)]


def test_messages_that_go_round_are_in_one_place_after_kills(tmp_path: Path) -> None:
    chooser = random.Random(0)
    for _ in range(ROUNDS):
        _killed(tmp_path, "never", "redrive", chooser.randrange(1, 200))
    numbers = [number for _, number, _ in _parse(_drained(tmp_path, "never"))]
    assert sorted(numbers) == sorted(set(numbers)), "a message is in both queues"
    assert len(numbers) == ROUND_COUNT


def _drained(folder: Path, flush: str) -> list[str]:
    program = _program(folder, flush, "drain")
    program.wait_for_line("end", within_s=PROGRESS_S_MAX)
    program.kill()
    assert program.error_lines == []
    return program.lines


def _killed(folder: Path, flush: str, what: str, enough: int) -> Program:
    """Return the program after it has said ``enough`` lines and was killed."""
    program = _program(folder, flush, what)
    program.wait_for(
        lambda: len(program.lines) >= enough, within_s=PROGRESS_S_MAX, what=f"{enough} lines"
    )
    program.kill()
    return program


def _program(folder: Path, flush: str, what: str) -> Program:
    command = [sys.executable, "-m", "tests.crash.queue_program", str(folder), flush, what]
    return Program(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, merge_errors=False)


def _check(lines: list[str], drained: list[str]) -> None:
    ends: dict[int, str] = {}
    handed_out: Counter[int] = Counter()
    sent: set[int] = set()
    attempts: defaultdict[int, list[int]] = defaultdict(list)
    for word, number, *rest in _parse(lines):
        if word == "sent":
            sent.add(number)
        elif word == "got":
            handed_out[number] += 1
            attempts[number].append(rest[0])
            assert number not in ends, f"{number} came again after it was {ends[number]}"
        else:
            assert number not in ends, f"{number} was {word} after it was {ends[number]}"
            ends[number] = word
    left = Counter(number for word, number, *_ in _parse(drained) if word == "left")
    dead = Counter(number for word, number, *_ in _parse(drained) if word == "dead")
    acked = {number for number, word in ends.items() if word == "acked"}
    moved = {number for number, word in ends.items() if word == "moved"}
    assert max((left | dead).values(), default=1) == 1, "one message in a queue twice"
    assert not left.keys() & dead.keys(), "a message is in both queues"
    assert not (left.keys() | dead.keys()) & acked, "what was acknowledged is there again"
    assert moved <= dead.keys(), "what had moved is gone"
    # An acknowledgement that was kept just before a kill was not told: such a message is gone.
    missing = sent - left.keys() - dead.keys() - acked
    untold = {number for number in missing if handed_out[number]}
    assert missing == untold, f"{len(missing - untold)} lost before anybody had them"
    kills = len([line for line in lines if line.startswith("ready")])
    at_once = 2 * RECEIVED_AT_ONCE + CONSUMED_AT_ONCE
    assert len(untold) <= kills * at_once, f"{len(untold)} lost: more than were being settled"
    assert acked
    assert moved
    assert any(max(counted) > 1 for counted in attempts.values())


def _parse(lines: list[str]) -> list[tuple[str, int, int]]:
    """Return (word, number, attempt) of each whole line."""
    found = []
    for line in lines:
        word, *numbers = line.split()
        if numbers:
            found.append((word, int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0))
    return found
