"""A node that is killed leaves whole commits behind, and all that it has told of."""

import subprocess
import sys

import pytest

from storage_adapters.s3.index import Index
from tests.storage_adapters.s3.index import committing_node
from tests.storage_adapters.s3.index.changes import OpenIndex

KILLS = 4
WITHIN_S = 60


@pytest.mark.crash
def test_a_killed_node_leaves_whole_commits(url: str, open_index: OpenIndex) -> None:
    told = 0
    for kill in range(KILLS):
        told = told_until_killed(url, told + 5 + kill)
        index = open_index(create=False)

        check_whole(index, told)

        index.close()


def told_until_killed(url: str, count: int) -> int:
    """Return the last count that the node told of, which is at least ``count``."""
    program = [sys.executable, "-m", committing_node.__name__, url]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        for line in node.stdout:
            if int(line) == count:
                node.kill()
        node.wait(WITHIN_S)
    return max(count, int(line))


def check_whole(index: Index, told: int) -> None:
    owned = index.take_over(2, reserve=0)  # after whatever was on its way
    objects, bounds = index.load()
    assert len(objects) in {told, told + 1}
    assert [row.start for row in bounds] == [len(objects)]
    assert owned.next_sequence == len(objects)
    for stored, _ in objects:
        assert index.rows(stored.number) is not None
