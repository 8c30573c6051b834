"""A process that ends anywhere in a change of settled segments leaves every partition whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.storage import Bounds
from gateway.testing.storage import append, make_entry, read_all
from storage_adapters.segment_log.adapter import SegmentLog
from storage_adapters.segment_log.failpoints import STEPS
from storage_adapters.segment_log.segments import SETTLED_DIRECTORY, list_segments
from storage_adapters.segment_log.verify import DAMAGED, Finding, Verification
from tests.storage_adapters.crash_runner import EXIT_AT_FAILPOINT, SCENARIOS, keep_odd
from tests.storage_adapters.settling import idle, opened, settle

pytestmark = pytest.mark.xdist_group("settling-crashes")  # what they look at is made once

# Where nothing new is written, nothing is begun.
NOT_PASSED = {("remove", "settle.begun"), ("compact-shared", "settle.unlinked")}


class Expected:
    """Expected content of one partition."""

    def __init__(self) -> None:
        self.start = self.next_start = 0
        self.end = 0
        self.rewritten: list[int] = []  # ends of files, which are rewritten one by one
        self.deleted = self.next_deleted = False
        self.batches: list[tuple[int, bytes]] = []  # end, bytes

    def note(self, fields: dict[str, object]) -> None:
        for name, value in fields.items():
            if name == "batch":
                self.batches.append((self.end, bytes.fromhex(str(value))))
            elif name != "partition":
                setattr(self, name, value)

    def allowed(self) -> list[tuple[Bounds, list[bytes]]]:
        """Return what it may hold: what was under way at the end has happened, or has not."""
        found = []
        if not self.deleted:
            found += [
                (Bounds(start, self.end), self._contents(start, upto))
                for start in {self.start, max(self.start, self.next_start)}
                for upto in (0, *self.rewritten)
            ]
        if self.next_deleted:
            found.append((Bounds(0, 0), []))
        return found

    def _contents(self, start: int, compacted_upto: int) -> list[bytes]:
        return [
            batch
            for end, batch in self.batches
            if end > start and not (end <= compacted_upto and keep_odd(batch) is None)
        ]


def expected_of(notes: Path) -> dict[int, Expected]:
    partitions: dict[int, Expected] = {}
    for line in notes.read_text().splitlines():
        fields = json.loads(line)
        partitions.setdefault(fields["partition"], Expected()).note(fields)
    return partitions


@pytest.fixture(scope="module")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("crashes")
    command = [sys.executable, "-m", "tests.storage_adapters.crash_runner", str(root)]
    subprocess.run(command, check=True, timeout=300)
    return root


async def check(log: SegmentLog, partitions: dict[int, Expected]) -> None:
    for partition_id, expected in partitions.items():
        held = log.bounds(partition_id), await read_all(log, partition_id)
        assert held in expected.allowed()


def damages(data_dir: Path) -> list[Finding]:
    """Return what a start could not mend; there may well be something to mend."""
    return [found for found in Verification(data_dir).run() if found.kind == DAMAGED]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_nothing_is_lost(crashes: Path, scenario: str, step: str) -> None:
    folder = crashes / scenario / step
    status = int((folder / "status").read_text())
    assert status == (0 if (scenario, step) in NOT_PASSED else EXIT_AT_FAILPOINT)
    partitions = expected_of(folder / "notes")

    assert damages(folder / "data") == []
    log = await opened(folder / "data")
    await check(log, partitions)
    await idle(log)
    await append(log, make_entry((7, 0)))
    await settle(log)
    await check(log, partitions)
    await log.close()

    on_disk = {number for number, _ in list_segments(folder / "data", SETTLED_DIRECTORY)}
    assert on_disk == set(log._catalog.settled.segments)
    assert list(Verification(folder / "data").run()) == []
    log = await opened(folder / "data")
    await check(log, partitions)
    await log.close()
