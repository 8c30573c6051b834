"""Runs every scenario and ends the process at every failpoint: ``python -m ... ROOT``.

Leaves ROOT/<scenario>/<step>/ with the data directory as it was then, and ``notes``: what was
acknowledged, one JSON object a line. Each run is a fork, so that Python starts once only.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from gateway.model import Buffer
from gateway.storage import Entry
from gateway.testing.storage import append, delete, make_entry, truncate
from storage_adapters.segment_log import failpoints
from storage_adapters.segment_log.adapter import SegmentLog
from tests.storage_adapters.settling import idle, opened, settle

EXIT_AT_FAILPOINT: Final = 77
ROUND_BYTES: Final = 2 * 1_048_576  # so that files of partition 1 are rewritten one by one
_SIZE_BYTES: Final = 60_000


class Noted:
    """A log whose acknowledgements are written down."""

    def __init__(self, log: SegmentLog, notes: Path) -> None:
        self.log = log
        self._fd = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, **fields: object) -> None:
        os.write(self._fd, json.dumps(fields).encode() + b"\n")

    async def append(self, *entries: Entry) -> None:
        await append(self.log, *entries)
        for entry in entries:
            for partition_id, base_offset in entry.targets:
                batch = base_offset.to_bytes(8, "big") + bytes(entry.batch)[8:]
                end = base_offset + entry.record_count
                self.note(partition=partition_id, end=end, batch=batch.hex())

    async def fill(self, count: int) -> None:
        """Much for partition 1, a little for 2 and 3."""
        log = self.log
        for number in range(count):
            size_bytes = _SIZE_BYTES + number
            big = make_entry((1, log.bounds(1).end), size_bytes=size_bytes)
            targets = [(i, log.bounds(i).end) for i in (2, 3)]
            await self.append(big, make_entry(targets, 3, size_bytes=300 + number))

    async def truncate(self, partition_id: int, offset: int) -> None:
        self.note(partition=partition_id, next_start=offset)
        await truncate(self.log, partition_id, offset)
        self.note(partition=partition_id, start=offset)

    async def delete(self, partition_id: int) -> None:
        self.note(partition=partition_id, next_deleted=True)
        await delete(self.log, partition_id)
        self.note(partition=partition_id, deleted=True)


def keep_odd(batch: Buffer) -> Buffer | None:
    """Drop every second batch of partition 1."""
    return batch if batch[7] % 2 else None


async def unsettled(noted: Noted) -> None:
    await noted.fill(40)


async def settled_once(noted: Noted) -> None:
    await noted.fill(40)
    await settle(noted.log)
    await noted.fill(30)


async def settled_thrice(noted: Noted) -> None:
    for _ in range(3):
        await noted.fill(20)
        await settle(noted.log)
    await noted.fill(20)


async def settled_in_three_files(noted: Noted) -> None:
    while len(noted.log._catalog.settled.owned(1)) < 3:  # A segment may not be closed in time.
        await noted.fill(20)
        await settle(noted.log)
    await noted.fill(20)


async def settle_all(noted: Noted) -> None:
    await noted.fill(1)
    await settle(noted.log)


async def remove(noted: Noted) -> None:
    await noted.truncate(1, noted.log.bounds(1).end)
    await noted.truncate(3, 60)
    await noted.delete(2)
    await idle(noted.log)


async def compact(noted: Noted) -> None:
    log = noted.log
    parts = log._catalog.settled.parts(log._catalog.footers, 1)
    noted.note(partition=1, rewritten=[part.end for _, part in parts])
    await noted.log.rewrite(1, noted.log.settled_offset(1), keep_odd)
    await noted.log.rewrite(3, noted.log.settled_offset(3), lambda batch: batch)


Act = Callable[[Noted], Awaitable[None]]
# What is there, what is done, and at which pass of a failpoint the process ends.
SCENARIOS: Final[dict[str, tuple[Act, Act, int]]] = {
    "first": (unsettled, settle_all, 1),
    "again": (settled_once, settle_all, 1),
    "merge": (settled_thrice, settle_all, 2),
    "remove": (settled_once, remove, 1),
    "compact": (settled_once, compact, 1),
    "compact-shared": (settled_once, compact, 2),
    # Three files of partition 1, each a change of its own: at the third.
    "compact-third": (settled_in_three_files, compact, 3),
}


def arm(step: str, times: int) -> None:
    left = [times]

    def action() -> None:
        left[0] -= 1
        if not left[0]:
            os._exit(EXIT_AT_FAILPOINT)

    failpoints.arm(step, action)


async def run(act: Act, folder: Path, step: str | None = None, times: int = 1) -> None:
    """Open the folder's log and act; at the failpoint, or at the end, the process is gone."""
    log = await opened(folder / "data", settle_round_bytes=ROUND_BYTES)
    if step is not None:
        await idle(log)
        arm(step, times)
    await act(Noted(log, folder / "notes"))
    os._exit(0)


def forked(work: Callable[[], None]) -> int:
    """Return the exit status of a child that does ``work``."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    root = Path(sys.argv[1])
    for name, (before, act, times) in SCENARIOS.items():
        base = root / name / "base"
        base.mkdir(parents=True)
        assert forked(partial(asyncio.run, run(before, base))) == 0, name
        for step in failpoints.STEPS:
            folder = root / name / step
            shutil.copytree(base, folder)
            status = forked(partial(asyncio.run, run(act, folder, step, times)))
            (folder / "status").write_text(str(status))


if __name__ == "__main__":
    main()
