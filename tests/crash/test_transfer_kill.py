"""kill -9 of either node at each step of transfers between two: each is applied once, in order."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.transfer_program import OPERATIONS
from tests.support.gateway import ROOT

WITHIN_S = 120
SOURCE, TARGET = 1, 2

pytestmark = pytest.mark.crash


class Nodes:
    """The processes of two nodes."""

    def __init__(self, folder: Path, flush: str) -> None:
        self._folder = folder
        self._flush = flush
        self._nodes: dict[int, subprocess.Popen[str]] = {}

    def start(self, node_id: int, kill_at: int = 0, when: str = "done") -> None:
        command = [sys.executable, "-m", "tests.crash.transfer_program", str(self._folder)]
        command += [str(node_id), self._flush, str(kill_at), when]
        pipe = subprocess.PIPE
        self._nodes[node_id] = subprocess.Popen(
            command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True
        )
        self.line(node_id, "ready")

    def line(self, node_id: int, word: str) -> str:
        """Return the next line with that word; an empty one when the process has ended."""
        stdout = self._nodes[node_id].stdout
        assert stdout is not None
        return next((line for line in stdout if line.startswith(word)), "")

    def ended(self, node_id: int) -> int:
        """Wait for the end of a process; return its code."""
        process = self._nodes[node_id]
        process.wait(WITHIN_S)
        process.communicate()
        return process.returncode

    def values(self, node_id: int) -> list[int]:
        stdin = self._nodes[node_id].stdin
        assert stdin is not None
        stdin.write("?\n")
        stdin.flush()
        return [int(word) for word in self.line(node_id, "values").split()[1:]]

    def close(self) -> None:
        for process in self._nodes.values():
            process.kill()
            process.communicate()


@pytest.fixture
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    with ExitStack() as stack:
        nodes = Nodes(tmp_path, request.param)
        stack.callback(nodes.close)
        yield nodes


# Of the source, appends 1 and 3 begin a transfer, 2 and 4 end it; each of the target applies one.
@pytest.mark.parametrize(
    ("nodes", "victim", "kill_at", "when"),
    [
        ("group", SOURCE, 1, "enqueued"),
        ("group", SOURCE, 3, "done"),
        ("never", SOURCE, 2, "enqueued"),
        ("group", TARGET, 1, "enqueued"),
        ("never", TARGET, 2, "done"),
    ],
    indirect=["nodes"],
)
def test_a_kill_at_a_step_of_a_transfer(
    nodes: Nodes, victim: int, kill_at: int, when: str
) -> None:
    for node_id in (TARGET, SOURCE):
        nodes.start(node_id, kill_at if node_id == victim else 0, when)

    assert nodes.ended(victim) == -9
    nodes.start(victim)

    assert nodes.line(SOURCE, "clear")
    expected = list(range(OPERATIONS))
    assert (nodes.values(SOURCE), nodes.values(TARGET)) == (expected, expected)


@pytest.mark.parametrize("nodes", ["group"], indirect=True)
def test_both_nodes_are_killed_amid_a_transfer(nodes: Nodes) -> None:
    nodes.start(TARGET, 2, "enqueued")
    nodes.start(SOURCE, 4, "enqueued")
    assert nodes.ended(TARGET) == -9
    nodes.start(TARGET, 1, "done")
    assert nodes.ended(TARGET) == -9
    nodes.start(TARGET)
    assert nodes.ended(SOURCE) == -9
    nodes.start(SOURCE)

    assert nodes.line(SOURCE, "clear")
    expected = list(range(OPERATIONS))
    assert (nodes.values(SOURCE), nodes.values(TARGET)) == (expected, expected)
