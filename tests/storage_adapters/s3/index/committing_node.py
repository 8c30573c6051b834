"""A node that commits one object after the other and says so, until it is killed.

Run with the index's URL. The log start of partition 1 counts the objects, so that half a commit
would show. SQLite's journal is copied all the time.
"""

import sys

from gateway.clock import SystemClock
from gateway.sql import checkpoints
from storage_adapters.s3.index import Index
from tests.storage_adapters.s3.index.changes import added, bounds


def main(url: str) -> None:
    index = Index(url, clock=SystemClock())
    checkpoints.PAUSE_S = 0.001  # type: ignore[misc]
    index.open(commits_often=True)
    owned = index.take_over(1, reserve=1)
    count = len(index.load().objects)
    [number] = owned.reserved
    while True:
        count += 1
        change = added(number, epoch=owned.epoch, reserve=1)
        whole = change._replace(bounds=(bounds(1, count),), next_sequence=count)
        [number] = index.commit(owned.epoch, whole)
        print(count, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
