"""kill -9 of a node that moves its state to another number of shards.

After each kill the move goes on, or the directory goes back; nothing is lost, and nothing old is
back.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.gateway import ROOT

WITHIN_S = 120

pytestmark = pytest.mark.crash


def ran(folder: Path, flush: str, what: str, kill_at: int) -> list[str]:
    """Return the lines of a run, none when it was killed."""
    command = [sys.executable, "-m", "tests.crash.reshard_program"]
    command += [str(folder), flush, what, str(kill_at)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    words = ("state", "shards", "home")
    found = [line for line in done.stdout.splitlines() if line.startswith(words)]
    assert done.returncode == (-9 if kill_at and not found else 0), done.stderr
    return found


def reshard(folder: Path, shards: int) -> None:
    command = [sys.executable, "-m", "gateway", "reshard", "--yes", "--shards", str(shards)]
    command += ["--set", f"node.data_dir={folder}"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("flush", "counts"),
    [
        ("group", (64, 1)),
        ("never", (64,)),
        pytest.param("never", (64, 1), marks=pytest.mark.soak),
    ],
)
def test_a_killed_move_goes_on(tmp_path: Path, flush: str, counts: Sequence[int]) -> None:
    state, *_ = ran(tmp_path, flush, "fill", 0)
    count = state.split()[2]
    for shards in counts:
        reshard(tmp_path, shards)
        for what, kill_at in (("load", 1), ("load", 5), ("load-delays", 2)):
            assert ran(tmp_path, flush, what, kill_at) == [], "the move had ended before"
        reshard(tmp_path, shards)  # once more, amid the move
        assert ran(tmp_path, flush, "load", 0) == [state, f"shards {shards}", f"home {count}"]
        assert ran(tmp_path, flush, "load", 0)[0] == state


def test_a_killed_move_can_go_back(tmp_path: Path) -> None:
    state, *_ = ran(tmp_path, "group", "fill", 0)
    count = state.split()[2]
    reshard(tmp_path, 64)
    assert ran(tmp_path, "group", "load", 3) == []

    reshard(tmp_path, 1)

    assert ran(tmp_path, "group", "load", 0) == [state, "shards 1", f"home {count}"]


def test_the_command_needs_data_of_a_stopped_node(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gateway", "reshard", "--yes", "--shards", "64"]
    command += ["--set", f"node.data_dir={tmp_path / 'none'}"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "is not there" in done.stderr
